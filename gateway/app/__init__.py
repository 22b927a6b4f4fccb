"""The composition root: from a configuration to a running process. Nothing imports it but the CLI.

- ``gateway``    puts relay, simulated provider, metrics and pages together; start, drain, stop
- ``pages``      ``/metrics``, ``/healthz``, ``/readyz``, ``/-/streams``
- ``rehearsal``  ``gateway try``
- ``process``    event loop, signals, file limits, exit codes
"""

from gateway.app.process import rehearse, serve, simulate

__all__ = ["rehearse", "serve", "simulate"]
