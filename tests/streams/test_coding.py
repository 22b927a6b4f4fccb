"""The side copy of a compressed stream: every coding in any pieces, and soft failure."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

import brotli
import pytest
import zstandard
from hypothesis import given, settings

from gateway.streams import coding
from gateway.streams.coding import Decoder, is_compressed
from tests.streams.feeding import CUTS, pieces, singles

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n' * 40


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


def zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(body)


CODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "zlib deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "br": ("br", brotli.compress),
    "zstd": ("zstd", zstd),
    "two codings": ("gzip, br", lambda body: brotli.compress(gzip.compress(body))),
    "capitals and spaces": (" GZip ,identity", gzip.compress),
}
every_coder = pytest.mark.parametrize("name", list(CODERS))


def decode(decoder: Decoder, chunks: list[bytes]) -> bytes:
    return b"".join(decoder.feed(chunk) for chunk in chunks)


@every_coder
def test_a_whole_body_is_decoded(name: str) -> None:
    header, compress = CODERS[name]
    decoder = Decoder(header)

    assert decode(decoder, [compress(TEXT)]) == TEXT
    assert not decoder.failed


@every_coder
def test_byte_by_byte_is_as_whole(name: str) -> None:
    header, compress = CODERS[name]

    assert decode(Decoder(header), singles(compress(TEXT))) == TEXT


@every_coder
@settings(max_examples=25)
@given(cuts=CUTS)
def test_any_pieces_are_as_whole(name: str, cuts: list[int]) -> None:
    header, compress = CODERS[name]

    assert decode(Decoder(header), pieces(compress(TEXT), cuts)) == TEXT


@pytest.mark.parametrize("window", [zlib.MAX_WBITS | 16, zlib.MAX_WBITS])
def test_what_a_server_flushes_can_be_read_at_once(window: int) -> None:
    packer = zlib.compressobj(wbits=window)
    decoder = Decoder("gzip" if window > 16 else "deflate")

    for event in (b"data: a\n\n", b"data: b\n\n"):
        packed = packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
        assert decoder.feed(packed) == event


@pytest.mark.parametrize("drip", [False, True])
def test_several_gzip_members_are_one_body(drip: bool) -> None:
    body = gzip.compress(b"a") + gzip.compress(b"b") + gzip.compress(b"c")

    assert decode(Decoder("gzip"), singles(body) if drip else [body]) == b"abc"


def test_several_zstd_frames_are_one_body() -> None:
    assert decode(Decoder("zstd"), [zstd(b"a") + zstd(b"b"), zstd(b"c")]) == b"abc"


@pytest.mark.parametrize("drip", [False, True])
def test_a_zstd_frame_to_be_skipped_is_skipped(drip: bool) -> None:
    skippable = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"xyz"
    body = zstd(b"a") + skippable + zstd(b"b")

    assert decode(Decoder("zstd"), singles(body) if drip else [body]) == b"ab"


@every_coder
def test_the_end_of_the_coding_is_known_with_its_last_byte_and_not_before(name: str) -> None:
    header, compress = CODERS[name]
    decoder = Decoder(header)
    body = compress(TEXT)
    ends = []
    for byte in singles(body):
        decoder.feed(byte)
        ends.append(decoder.finished)

    assert ends == [False] * (len(body) - 1) + [True]


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_another_member_opens_the_coding_again(name: str) -> None:
    header, compress = CODERS[name]
    decoder = Decoder(header)
    decoder.feed(compress(b"a"))
    assert decoder.finished

    decoder.feed(compress(b"b")[:-1])

    assert not decoder.finished
    assert not decoder.failed


def test_what_cannot_be_decoded_has_no_end() -> None:
    decoder = Decoder("gzip")
    decoder.feed(gzip.compress(b"a") + b"no gzip")

    assert decoder.failed
    assert not decoder.finished


@pytest.mark.parametrize("header", ["", "identity", "identity, identity"])
def test_no_coding_is_no_change(header: str) -> None:
    assert decode(Decoder(header), [b"plain"]) == b"plain"


@pytest.mark.parametrize("header", ["gzip", "br", "zstd", "deflate"])
def test_bytes_that_are_not_compressed_fail_the_decoder_for_good(header: str) -> None:
    decoder = Decoder(header)

    assert decode(decoder, [b"this is not compressed in any way", b"nor is this"]) == b""
    assert decoder.failed
    assert decoder.feed(gzip.compress(b"x")) == b""


@pytest.mark.parametrize("header", ["compress", "gzip, snappy"])
def test_an_unknown_coding_fails_the_decoder_at_once(header: str) -> None:
    decoder = Decoder(header)

    assert decoder.failed
    assert decoder.feed(gzip.compress(b"x")) == b""


@pytest.mark.parametrize("name", ["gzip", "zlib deflate", "br", "zstd"])
def test_a_bomb_fails_the_decoder_instead_of_filling_the_memory(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coding, "MAX_OUTPUT", 64 << 10)
    header, compress = CODERS[name]
    decoder = Decoder(header)

    assert decoder.feed(compress(bytes(8 << 20))) == b""
    assert decoder.failed


@pytest.mark.parametrize(
    ("header", "compressed"),
    [
        (None, False),
        ("", False),
        ("identity", False),
        (" Identity , ", False),
        ("gzip", True),
        ("identity, br", True),
        ("something-new", True),
    ],
)
def test_whether_a_header_names_a_coding(header: str | None, compressed: bool) -> None:
    assert is_compressed(header) == compressed
