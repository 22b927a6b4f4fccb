"""Decisions that need no I/O: the map of this package, no code itself.

- ``routing``     the request target → a provider and the rest of the path, an own page, a refusal
- ``headers``     which headers go upstream and which come back
- ``peek``        model, stream and choices out of a request body, without understanding the rest
- ``clients``     which program asks, in which session, and whether it is itself retrying
- ``redact``      takes secrets out of everything that is logged or shown
- ``enrich``      an error's body as the client should see it. Its parts: ``error_body`` reads one,
  ``error_detail`` finds what it says beside its message, ``error_growth`` appends that,
  ``error_dialect`` puts in what SDKs look for, ``error_told`` makes a sentence of what is no JSON,
  ``error_markup`` reads pages and XML;
  ``client_words`` knows what clients do about words; ``json_edit``, ``json_mask``, ``json_cut``,
  ``status_words``
- ``retry``       whether and when a failed try is made again; the table of failures
- ``budget``      how many retries a provider may cost in a minute
- ``breaker``     when a provider is not asked for a while
- ``preview``     what is shown of a command's output: bytes, bounds → head, tail, text
- ``preview_render``, ``preview_notice``   bytes as text; what is said of what is not shown
- ``exec_request``  the body of a request to run a command, and its key
- ``exec_range``    which part of an output is asked for
- ``exec_access``   who may run commands, and where
- ``exec_env``      the environment of a command
- ``rename``      a request for another provider's name of the model

``budget`` and ``breaker`` keep counts of what they were told; nothing else here keeps anything from
one request to the next. Nothing reads a clock, and only ``exec_request`` and
``exec_range`` raise on what a client sent.
"""
