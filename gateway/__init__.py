"""A reverse proxy between coding agents and LLM providers; the map of the code, no code itself.

Agents are pointed at it by base URL. It relays what the provider sends unchanged and understands
it at the same time: whether a stream has finished, is making progress, what its errors mean.

Layers, each row may import only the rows below it (held by import-linter)::

    cli           serve | check | sim | try | exec | sh
    app           composition root: settings → clients, routes, drain
    relay | sidecar | sim
                  the I/O features; they never import one another
    observe       metrics, logs, request records, the register of what is open
    config        frozen structs, TOML loading, presets; errors name the key and say the mend
    policy        decisions: routing, headers, peeking into requests, redaction, retries, circuits
    protocols     one file per provider protocol + one registration line
    streams       framing, kinds of events, and the one object that knows how a stream stands
    errors        GatewayError(origin, code, retryable)

``errors``, ``streams``, ``protocols``, ``policy`` and ``config`` do no I/O and read no clock:
time is an argument.

The life of one request, in the order of the code::

    relay.handler   match provider → read + bound the body → peek {model, stream} → protocol
    relay.rescue    try → failed? wait and try again, or another provider → what the client is told
    relay.attempt   one upstream try: connect, send, headers; library exceptions → GatewayError
    relay.pump      body: read → stream.receive_data → write whole events, until stream.closed
    observe         one RequestRecord → metrics, one log line

The life of one command (a listener of its own; ``cli.exec_*`` and ``cli.sh`` are its clients)::

    sidecar.server    settings → runner, folder, listener; a clean end
    sidecar.endpoint  token, body → policy.exec_* → sidecar.service: queue, store, records
    sidecar.runner    → zygote, a program of its own, which forks
    sidecar.shim      one process per command: the pipe, launch.py, session.py until it ends
    sidecar.sink      what comes out of the pipe → the file, head, tail and counts
    sidecar.answer    status + policy.preview → what the client is told; reader.py for the bytes

What a shim imports is the standard library and its neighbours alone: it never holds a key.

To add a protocol, read ``CONTRIBUTING.md``; to learn what a stream's ending means, read
``gateway.streams.stream``.
"""

__version__ = "0.1.0"
