"""Content codings."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

import brotli
import pytest
import zstandard

from gateway.sim.coding import decode, encoder

if TYPE_CHECKING:
    from collections.abc import Callable


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    "br": brotli.decompress,
    "zstd": _zstd,
}


@pytest.mark.parametrize("coding", DECODERS)
def test_what_is_encoded_can_be_decoded(coding: str) -> None:
    made = encoder(coding)
    data = made.encode(b"data: 1\n\n") + made.encode(b"data: 2\n\n") + made.finish()
    assert DECODERS[coding](data) == b"data: 1\n\ndata: 2\n\n"


@pytest.mark.parametrize(
    ("coding", "decompress"),
    [
        ("gzip", lambda: zlib.decompressobj(31).decompress),
        ("deflate", lambda: zlib.decompressobj().decompress),
        ("br", lambda: brotli.Decompressor().process),
        ("zstd", lambda: zstandard.ZstdDecompressor().decompressobj().decompress),
    ],
)
def test_every_piece_can_be_read_at_once(
    coding: str, decompress: Callable[[], Callable[[bytes], bytes]]
) -> None:
    made, read = encoder(coding), decompress()
    for event in (b"data: one\n\n", b"data: two\n\n"):
        assert read(made.encode(event)) == event


@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        ("", bytes),
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("br", brotli.compress),
        ("ZSTD", zstandard.ZstdCompressor().compress),
    ],
)
def test_request_bodies_are_decoded(coding: str, encode: Callable[[bytes], bytes]) -> None:
    assert decode(encode(b'{"model": "sim-ok"}'), coding) == b'{"model": "sim-ok"}'


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_body_that_is_not_what_it_says_is_refused(coding: str) -> None:
    with pytest.raises(ValueError, match=f"not valid {coding}"):
        decode(b"this is plain text", coding)


def test_an_unknown_coding_is_refused() -> None:
    with pytest.raises(ValueError, match="'lzma' is not known"):
        decode(b"", "lzma")
