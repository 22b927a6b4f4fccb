"""The simulated provider: answers like the real ones, fails on request; never relays or retries.

It speaks OpenAI Chat Completions, legacy Completions, Responses, Anthropic Messages and Gemini,
streaming and not. How it answers is chosen by the model name alone, so any client can ask for a
failure::

    {"model": "sim-bare-eof,after=3,times=1", "stream": true, ...}

is cut after three content events on its first request, and whole from the second on.

The map, from pure to I/O::

    params      the parameters of model names, and how they are read
    script      the grammar of model names, the table of scripts
    content     what the answer says: text, reasoning, tool call, usage
    shape       what a protocol must offer: events, whole answers, errors, keepalives
    openai, chat, completions, responses, anthropic, gemini
                one file per protocol; they build lists of encoded events
    problem     what can be wrong, in the words of each provider
    plan        steps (send, pause, beat) and the end of one exchange
    replies     HTTP errors in every form, and pages
    stage       (script, events) → plan: where the stream breaks and how
    routes      which protocol a path belongs to
    coding      compression of what is sent, decompression of what came
    ledger      what the provider saw, without secrets
    wire        bytes on the transport, broken on purpose where the plan says so
    server      sockets, pace, and the count of requests per model name

Everything above ``wire`` is pure. ``times``, ``skip`` and ``one_in`` count requests per exact model
name and per server. This package imports nothing of the gateway, so that it can bear witness about
it.
"""
