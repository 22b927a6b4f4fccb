"""The gateway's own pages: health, metrics, what is open. Never anything of a request's content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gateway import __version__
from gateway.observe.live import Live, streams_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import CollectorRegistry

INDEX = {
    "/healthz": "200 while the process is up",
    "/readyz": "200 while new requests are taken, 503 while draining",
    "/metrics": "Prometheus metrics",
    "/-/streams": "the open streams, the longest without progress first",
}


class Pages:
    """Answers requests for the gateway's own paths; GET and HEAD only."""

    def __init__(
        self,
        registry: CollectorRegistry,
        live: Live,
        *,
        now: Callable[[], float],
        ready: Callable[[], bool],
    ) -> None:
        self._registry = registry
        self._live = live
        self._now = now
        self._ready = ready

    def answer(self, method: str, path: str) -> web.Response:
        """The page at ``path`` (without a query)."""
        if method not in ("GET", "HEAD"):
            refusal = {
                "error": {"message": f"{path} takes GET and HEAD only.", "code": "bad_request"}
            }
            return _json(refusal, status=405, headers={"Allow": "GET, HEAD"})
        match path:
            case "/healthz":
                return web.Response(text="ok\n")
            case "/readyz":
                ready = self._ready()
                return web.Response(
                    text="ready\n" if ready else "draining\n", status=200 if ready else 503
                )
            case "/metrics":
                return web.Response(
                    body=generate_latest(self._registry),
                    headers={"Content-Type": CONTENT_TYPE_LATEST},
                )
            case "/-/streams":
                return _json({"streams": streams_page(self._live, self._now())})
            case "/-/":
                return _json({"gateway": __version__, "pages": INDEX})
            case _:
                message = (
                    f"There is no page {path}: the gateway's own pages are {', '.join(INDEX)}."
                )
                return _json({"error": {"message": message, "code": "not_found"}}, status=404)


def _json(
    value: object, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    body = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")
