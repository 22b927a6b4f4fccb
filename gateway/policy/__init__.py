"""Decisions about one request that need no I/O: the map of this package, no code itself.

- ``routing``  the request target → a provider and the rest of the path, an own page, a refusal
- ``headers``  which headers go upstream and which come back
- ``peek``     model, stream and choices out of a request body, without understanding the rest of it
- ``clients``  which program asks, in which session, and whether it is itself retrying
- ``redact``   takes secrets out of everything that is logged or shown

Nothing here keeps state, reads a clock or raises on what a client sent.
"""
