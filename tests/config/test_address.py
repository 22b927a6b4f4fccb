"""Addresses to listen on."""

import pytest

from gateway.config.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8484", Address(host="127.0.0.1", port=8484)),
        ("localhost:0", Address(host="localhost", port=0)),
        ("[::1]:8484", Address(host="::1", port=8484)),
        ("0.0.0.0:65535", Address(host="0.0.0.0", port=65535)),
        ("unix:/run/gateway.sock", Address(path="/run/gateway.sock")),
        ("unix:/run/with space:1", Address(path="/run/with space:1")),
    ],
)
def test_an_address_is_read_and_written_back(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8484",
        ":8484",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:http",
        "127.0.0.1:-1",
        "127.0.0.1:65536",
        "::1:8484",
        "[]:8484",
        "http://127.0.0.1:8484",
        "host name:1",
        "unix:relative.sock",
        "unix:",
        "unix:/run/",
    ],
)
def test_what_is_no_address_is_refused_with_an_example_of_one(text: str) -> None:
    with pytest.raises(ValueError, match=r'must be an address such as "127\.0\.0\.1:8484"'):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8484", "http://127.0.0.1:8484"),
        ("0.0.0.0:80", "http://127.0.0.1:80"),
        ("[::]:80", "http://[::1]:80"),
        ("unix:/run/gateway.sock", ""),
    ],
)
def test_a_client_on_this_machine_is_told_a_host_it_can_reach(text: str, url: str) -> None:
    assert parse_address(text).url == url
