"""Connections to providers: exact bytes out, parsed answers in. Never repeats, follows or invents.

aiohttp's connector (DNS, happy eyeballs, TLS, proxies, pool) and its response parser are used
without its session: a session adds header fields, cookies and logins from netrc, follows redirects,
repeats GETs by itself and writes URLs anew, none of which a relay may do.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import itertools
import select
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp.client_reqrep import ClientRequest, ConnectionKey
from aiohttp.http import StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD
from yarl import URL

from gateway.relay.answer_protocol import AnswerProtocol
from gateway.relay.call import text_fields
from gateway.relay.network import login_of, open_socket

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.http import RawResponseMessage
    from multidict import CIMultiDictProxy

    from gateway.config.model import Provider
    from gateway.relay.body import RequestBody

POOL_SECONDS: Final = 30.0
"""How long an idle connection is kept. Most servers close theirs after 60 s or more; those that
close sooner are noticed when they do, but for a race that ``attempt`` mends."""

_TURNS: Final = 3
"""Turns of the loop in which what has come is read, unless its reader has enough."""

READ_SIZE: Final = 64 * 1024
"""Bytes after which reading from a provider pauses while nobody takes them: at most twice that."""

MAX_FIELDS: Final = 1000
"""Header fields of an answer; aiohttp's own limit of 128 is below what providers have sent."""

MAX_HEAD: Final = 1024 * 1024
"""Bytes of one header field, or of the status line, of an answer."""

_WHOLE: Final = 64 * 1024
"""A kept body up to this size is written together with the head, without a task of its own."""


class NotHttpError(Exception):
    """What came back is HTTP, but nothing that a request like this one may be answered with."""


class _Target(ClientRequest):
    """What the connector must know to reach an endpoint; never sent itself."""

    key: ConnectionKey | None = None

    @property
    def connection_key(self) -> ConnectionKey:
        """Under which connections are pooled."""
        return self.key or super().connection_key


class Endpoint:
    """Where and how one provider is reached. ``host`` is its name for people, without the login."""

    __slots__ = ("_fresh", "_key", "_prefix", "_root", "_target", "connect", "host", "proxy_fields")

    def __init__(self, provider: Provider, proxy: URL | None, tls: ssl.SSLContext | None) -> None:
        base = URL(provider.base_url)
        origin = base.origin()
        self.host = base.host_port_subcomponent or ""
        self.connect = aiohttp.ClientTimeout(connect=provider.timeouts.connect)
        # A proxy without a tunnel is asked for whole URLs, and gets its login each time.
        forwarded = proxy is not None and base.scheme == "http"
        path = base.raw_path.rstrip("/")
        self._prefix = (f"{origin}{path}" if forwarded else path).encode("latin-1")
        self._root = b"" if path else b"/"
        login = login_of(proxy)
        self.proxy_fields = [("Proxy-Authorization", login)] if forwarded and login else []
        self._target = _Target(
            "GET",
            origin,
            loop=asyncio.get_running_loop(),
            ssl=tls or True,
            proxy=proxy.with_user(None) if proxy is not None else None,
            # The connector adds Host here on its first use; the pool's key must not change by that.
            proxy_headers=_proxy_headers(self.host, login) if proxy is not None else None,
        )
        self._key = self._target.key = self._target.connection_key
        self._fresh = itertools.count(1)

    def target(self, rest: bytes) -> bytes:
        """The request target for what a client asked for below the provider's name."""
        return self._prefix + (rest if rest.startswith(b"/") else self._root + rest)

    def connector_target(self, *, fresh: bool) -> _Target:
        """For the connector; ``fresh`` under a key of its own, so that no pooled one answers it."""
        if not fresh:
            return self._target
        target = copy.copy(self._target)
        target.key = self._key._replace(proxy_headers_hash=-next(self._fresh))
        return target


class Upstreams:
    """All connections to providers, pooled. Made and closed inside the running loop."""

    def __init__(self) -> None:
        self._connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=POOL_SECONDS, socket_factory=open_socket
        )
        factory = functools.partial(AnswerProtocol, asyncio.get_running_loop())
        self._connector._factory = factory  # type: ignore[assignment] # a subclass is one, too
        self._used: WeakSet[ResponseHandler] = WeakSet()

    async def close(self) -> None:
        """Close every connection, used or idle."""
        await self._connector.close()

    async def connect(self, endpoint: Endpoint, *, fresh: bool) -> Exchange:
        """A connection for one exchange, pooled or new; raises aiohttp's and OS errors."""
        while True:
            connection = await self._connector.connect(
                endpoint.connector_target(fresh=fresh), [], endpoint.connect
            )
            protocol = connection.protocol
            assert protocol is not None
            reused = protocol in self._used
            if reused and protocol.should_close:
                # Something came while it was idle: it would be taken for the answer.
                connection.close()
                continue
            self._used.add(protocol)
            return Exchange(connection, protocol, reused=reused, single_use=fresh)


class Exchange:
    """One request and its answer on one connection.

    ``reused``: the connection has served before. ``sent_at``: when the last byte of the request was
    handed over; ``head_at``: when the head of the answer came. After :meth:`head` (``answered``):
    ``status``, ``reason``, ``fields``, ``headers`` (the same, for lookups), ``content``. The
    connection goes back to the pool by itself when both bodies have passed whole; until then it
    must be closed, or ``handed_over`` to :meth:`finish`.
    """

    __slots__ = (
        "_connection", "_limit", "_loop", "_lost", "_protocol", "_raw_headers", "_single_use",
        "_timer", "_upload", "answered", "content", "handed_over", "head_at", "headers", "reason",
        "reused", "sent_at", "status", "upload_error",
    )  # fmt: skip

    content: aiohttp.StreamReader
    headers: CIMultiDictProxy[str]
    status: int
    reason: str

    def __init__(
        self, connection: Connection, protocol: ResponseHandler, *, reused: bool, single_use: bool
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = connection
        self._protocol = protocol
        self._single_use = single_use
        self._upload: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._timer: asyncio.Timeout | None = None
        self._limit = 0.0
        self.sent_at = self.head_at = 0.0
        self.reused = reused
        self.answered = self.handed_over = False
        self.upload_error: Exception | None = None

    def send(self, method: str, head: bytes, body: RequestBody) -> None:
        """Write the request. A body that is not at hand is sent in the background."""
        protocol, transport = self._protocol, self._protocol.transport
        protocol.set_response_params(
            skip_payload=method == "HEAD",
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=READ_SIZE,
            max_line_size=MAX_HEAD,
            max_field_size=MAX_HEAD,
            max_headers=MAX_FIELDS,
        )
        if transport is None:
            return  # it died just now: waiting for the answer's head will say so
        kept = body.kept
        if kept is not None and len(kept) <= _WHOLE:
            transport.write(head + kept if kept else head)
            self.sent_at = monotonic()
        else:
            if isinstance(protocol, AnswerProtocol):
                protocol.keep_unread()
            transport.write(head)
            self._upload = self._loop.create_task(self._send_body(body))
            self._upload.add_done_callback(self._upload_done)

    async def _send_body(self, body: RequestBody) -> None:
        writer = StreamWriter(self._protocol, self._loop)
        if body.length is None:
            writer.enable_chunking()
        async for piece in body.pieces():
            await self._listen()
            # A provider that takes no bytes is as silent as one that sends none; a client that
            # sends none may take its time.
            self._limit_from(monotonic())
            await writer.write(piece)
            self._limit_from(None)
        self._limit_from(monotonic())
        await writer.write_eof()

    async def _listen(self) -> None:
        """Read what has come before more is written: a write could meet the reset behind it."""
        transport = self._protocol.transport
        opened = None if transport is None else transport.get_extra_info("socket")
        if opened is None or opened.fileno() < 0:
            return
        poll = select.poll()
        poll.register(opened.fileno(), select.POLLIN)
        for _ in range(_TURNS):
            if not poll.poll(0):
                return
            await asyncio.sleep(0)

    def _upload_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.sent_at = monotonic()
            self._limit_from(self.sent_at)
            if self.answered and self.content.is_eof():
                self._answer_done()
        elif isinstance(error, Exception) and not isinstance(error, ConnectionError):
            # The client's body cannot be read: nothing more can come of this exchange.
            self.upload_error = error
            self.close()

    def _limit_from(self, start: float | None) -> None:
        if self._timer is not None:
            self._timer.reschedule(None if start is None else start + self._limit)

    @property
    def sent(self) -> bool:
        """Whether the whole request has been handed to the connection."""
        upload = self._upload
        if upload is None:
            return True
        return upload.done() and not upload.cancelled() and upload.exception() is None

    async def head(self, limit: float) -> None:
        """Wait for the answer's status and header fields, for ``limit`` seconds after the request
        has been sent; raises TimeoutError, aiohttp's and OS errors.
        """
        self._limit = limit
        try:
            async with asyncio.timeout(limit if self.sent else None) as self._timer:
                message, content = await self._final_message()
        finally:
            self._timer = None
        self.head_at = monotonic()
        self.sent_at = self.sent_at or self.head_at
        self.status = message.code
        self.reason = message.reason
        self.headers = message.headers
        self._raw_headers = message.raw_headers
        if not message.chunked and "Content-Length" not in message.headers:
            self._lost = self._protocol.closed
            if self._lost is not None:
                self._lost.add_done_callback(asyncio.Future.exception)
        self.content = content
        self.answered = True
        content.on_eof(self._answer_done)

    async def _final_message(self) -> tuple[RawResponseMessage, aiohttp.StreamReader]:
        while True:
            message, content = await self._protocol.read()
            if message.code >= 200:
                return message, content
            if message.code == 101:
                raise NotHttpError("it switched to another protocol, unasked")

    def _answer_done(self) -> None:
        self._let_go()
        connection = self._connection
        if connection is None or (self._upload is not None and not self._upload.done()):
            return  # an answer before its request was sent whole: `_upload_done` looks again
        self._connection = None
        if self._single_use or not self.sent:
            connection.close()
        else:
            connection.release()

    def _let_go(self) -> None:
        if isinstance(self._protocol, AnswerProtocol):
            self._protocol.let_go()

    def distrust(self) -> None:
        """Let nobody use the connection again if it has served before. The answer may have been one
        that nobody had asked for, sent while it was idle (408, say): the next would be this one's.
        """
        if self.reused:
            self._protocol.force_close()

    @property
    def heard(self) -> bool:
        """Whether a byte of an answer has come."""
        return isinstance(self._protocol, AnswerProtocol) and self._protocol.heard

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The answer's header fields as on the wire (latin-1 text)."""
        return text_fields(self._raw_headers)

    def ready(self) -> bytes:
        """What has come of the body and was not read yet, also when the connection has broken."""
        content = self.content
        if content is EMPTY_PAYLOAD:
            return b""
        # The public methods raise the connection's error before they give out what came first.
        data: bytes = content._read_nowait(-1)
        return data

    @property
    def broke(self) -> bool:
        """Whether an answer without a length, ended by the connection's end, ended with a reset."""
        lost = self._lost
        return lost is not None and lost.done() and lost.exception() is not None

    @property
    def open(self) -> bool:
        """Whether the connection is still in use."""
        return self._connection is not None

    def close(self) -> None:
        """End the exchange now; whatever has not come will not come."""
        self._let_go()
        if self._upload is not None and not self._upload.done():
            self._upload.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def finish(self, seconds: float) -> Coroutine[Any, Any, None]:
        """What reads and drops the rest, at most for ``seconds``, so that the connection can be
        used again; it then has the exchange to itself.
        """
        self.handed_over = True
        return self._finish(seconds)

    async def _finish(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while await self.content.readany():
                    pass
        except (TimeoutError, aiohttp.ClientError, OSError, RuntimeError):
            pass
        finally:
            self.close()


def _proxy_headers(host: str, login: str | None) -> dict[str, str]:
    return {"Host": host} | ({"Proxy-Authorization": login} if login else {})
