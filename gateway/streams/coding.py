"""Decodes the side copy of a compressed stream step by step. Never touches the bytes that are
relayed.

Content codings: gzip, deflate (zlib or raw), br, zstd (RFC 9110 section 8.4.1, RFC 8878); several
may be stacked. A decoder that meets bytes it cannot read is ``failed`` from then on and gives
nothing more: the stream is then opaque, not cut.
"""

from __future__ import annotations

import zlib
from typing import Protocol

import brotli
import zstandard

MAX_OUTPUT = 16 << 20
"""Most bytes that one read may expand to; a read that expands further fails the decoder (a
compression bomb)."""

_ZSTD_STEP = 256


class _Step(Protocol):
    @property
    def finished(self) -> bool: ...

    def feed(self, data: bytes) -> bytes: ...


def _check(size: int) -> None:
    """The libraries stop at about the bound; what more there is would come with the next read."""
    if size >= MAX_OUTPUT:
        raise ValueError("expands too far")


class _Zlib:
    def __init__(self, window: int) -> None:
        self._window = window
        self._inflate = zlib.decompressobj(window)

    @property
    def finished(self) -> bool:
        return self._inflate.eof

    def feed(self, data: bytes) -> bytes:
        out = self._inflate.decompress(data, MAX_OUTPUT)
        while self._inflate.eof and self._inflate.unused_data:
            # A body may be several gzip members, one after the other (RFC 1952 section 2.2).
            data = self._inflate.unused_data
            self._inflate = zlib.decompressobj(self._window)
            out += self._inflate.decompress(data, MAX_OUTPUT)
        _check(len(out))
        return out


class _Deflate:
    """ "deflate" means zlib (RFC 9110), but raw deflate is sent, too: the first two bytes tell."""

    def __init__(self) -> None:
        self._head = b""
        self._inflate: _Zlib | None = None

    @property
    def finished(self) -> bool:
        return self._inflate is not None and self._inflate.finished

    def feed(self, data: bytes) -> bytes:
        if self._inflate is None:
            data = self._head = self._head + data
            if len(data) < 2:
                return b""
            zlib_header = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._inflate = _Zlib(zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS)
        return self._inflate.feed(data)


class _Brotli:
    def __init__(self) -> None:
        self._decompressor = brotli.Decompressor()

    @property
    def finished(self) -> bool:
        return bool(self._decompressor.is_finished())

    def feed(self, data: bytes) -> bytes:
        out: bytes = self._decompressor.process(data, output_buffer_limit=MAX_OUTPUT)
        _check(len(out))
        return out


class _Zstd:
    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        self._frame = self._decompressor.decompressobj()

    @property
    def finished(self) -> bool:
        return self._frame.eof

    def feed(self, data: bytes) -> bytes:
        out = bytearray()
        # The library has no output limit, and four bytes may stand for 128 KiB: small steps keep
        # what one of them can expand to in bounds.
        for start in range(0, len(data), _ZSTD_STEP):
            part = data[start : start + _ZSTD_STEP]
            while part:
                if self._frame.eof:
                    # A body may be several frames, one after the other (RFC 8878 section 3).
                    self._frame = self._decompressor.decompressobj()
                out += self._frame.decompress(part)
                part = self._frame.unused_data
            _check(len(out))
        return bytes(out)


def _step(coding: str) -> _Step | None:
    match coding:
        case "gzip" | "x-gzip":
            return _Zlib(zlib.MAX_WBITS | 16)
        case "deflate":
            return _Deflate()
        case "br":
            return _Brotli()
        case "zstd":
            return _Zstd()
        case _:
            return None


class Decoder:
    """Decodes one body. ``feed`` never raises; ``failed`` says that the plain text is lost from
    here on."""

    __slots__ = ("_steps", "failed")

    def __init__(self, content_encoding: str) -> None:
        """``content_encoding`` is the header's value; an unknown coding in it fails the decoder at
        once."""
        codings = [part.strip().lower() for part in content_encoding.split(",")]
        steps = [_step(coding) for coding in reversed(codings) if coding not in ("", "identity")]
        self._steps = [step for step in steps if step is not None]
        self.failed = len(self._steps) != len(steps)

    @property
    def finished(self) -> bool:
        """Whether each coding's own end has come: a body that stops here is whole."""
        return not self.failed and all(step.finished for step in self._steps)

    def feed(self, data: bytes) -> bytes:
        """Take compressed bytes as they came; return what they decode to so far."""
        if self.failed:
            return b""
        try:
            for step in self._steps:
                data = step.feed(data)
        except (zlib.error, brotli.error, zstandard.ZstdError, ValueError):
            self.failed = True
            return b""
        return data


def is_compressed(content_encoding: str | None) -> bool:
    """Whether the header names any coding but identity."""
    return any(
        part.strip().lower() not in ("", "identity") for part in (content_encoding or "").split(",")
    )
