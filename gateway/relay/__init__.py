"""One request from a client to a provider and back: the map of this package, no code itself.

::

    server       aiohttp's low-level server with what a relay needs: limits told in JSON
    handler      match the provider → read the body → find the protocol → rescue → record
    rescue       try, wait and try again, go elsewhere, give up; the counting of all that
    fallback     which other providers there are, and turning a request to one of them
    circuits     whether a provider or model may be asked now, and what a try says of it
    pulse        keepalives to a client that waits
    call         what is known of one request; the structs that the modules below share
    body         the request's body: kept for a second try, or streamed through
    attempt      one try: connect, send, wait for the answer's head (library errors → GatewayError)
    failures     what can go wrong with a try, as values
    upstream     connections to providers, exact bytes out, parsed answers in
    network      what lies in between: proxies, trust, socket options
    pump         the body of a stream, through ``gateway.streams.stream.Stream``
    passage      every other body, and the 200 that is no answer
    held_error   a provider's HTTP error, held for another try and for better words
    error_answers   how such errors, and those in streams, reach the client
    downstream   the client's side: exact bytes out, a clean end or a broken connection
    replies      the gateway's own answers in the client's dialect

What an event means, which headers cross and what is a secret is decided below, in ``streams``,
``protocols`` and ``policy``; here are the sockets and the clock.
"""
