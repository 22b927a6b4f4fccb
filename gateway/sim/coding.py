"""Content codings of answers (flushed after every write) and of request bodies; knows no HTTP."""

from __future__ import annotations

import zlib
from typing import Protocol

import brotli
import zstandard


class Encoder(Protocol):
    """Compresses a body piece by piece; every piece can be read by the receiver at once."""

    def encode(self, data: bytes) -> bytes:
        """The compressed piece, flushed."""

    def finish(self) -> bytes:
        """What the format needs at its end."""


class _Identity:
    def encode(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


class _Zlib:
    def __init__(self, wbits: int) -> None:
        self._compressor = zlib.compressobj(wbits=wbits)

    def encode(self, data: bytes) -> bytes:
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._compressor.flush()


class _Brotli:
    def __init__(self) -> None:
        self._compressor = brotli.Compressor(quality=4)

    def encode(self, data: bytes) -> bytes:
        return bytes(self._compressor.process(data) + self._compressor.flush())

    def finish(self) -> bytes:
        return bytes(self._compressor.finish())


class _Zstandard:
    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor().compressobj()

    def encode(self, data: bytes) -> bytes:
        compressed = self._compressor.compress(data)
        return compressed + self._compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def finish(self) -> bytes:
        return self._compressor.flush()


def encoder(coding: str) -> Encoder:
    """A fresh encoder for ``identity``, ``gzip``, ``deflate``, ``br`` or ``zstd``."""
    match coding:
        case "gzip":
            return _Zlib(16 + zlib.MAX_WBITS)
        case "deflate":
            return _Zlib(zlib.MAX_WBITS)
        case "br":
            return _Brotli()
        case "zstd":
            return _Zstandard()
        case _:
            return _Identity()


def decode(data: bytes, coding: str) -> bytes:
    """A request body without its Content-Encoding. Raises ValueError where it cannot be read."""
    try:
        match coding.strip().lower():
            case "" | "identity":
                return data
            case "gzip" | "x-gzip" | "deflate":
                return zlib.decompress(data, 32 + zlib.MAX_WBITS)
            case "br":
                return bytes(brotli.decompress(data))
            case "zstd":
                return zstandard.ZstdDecompressor().decompressobj().decompress(data)
            case _:
                raise ValueError(f"the content-encoding '{coding}' is not known")
    except (zlib.error, brotli.error, zstandard.ZstdError) as error:
        raise ValueError(f"the body is not valid {coding}") from error
