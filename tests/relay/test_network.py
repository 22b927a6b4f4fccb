"""Proxies by setting and environment, and what TLS trusts."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from gateway.relay.network import UnusableProxyError, find_proxy, trust
from tests.relay import tls

if TYPE_CHECKING:
    from pathlib import Path


def test_the_environment_names_proxies_and_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:1")
    monkeypatch.setenv("NO_PROXY", "direct.test,.internal")
    assert str(find_proxy("https://api.test", "env")) == "http://secure:1"
    assert find_proxy("http://api.test", "env") is None
    assert find_proxy("https://direct.test", "env") is None
    assert find_proxy("https://a.internal:8443", "env") is None
    assert find_proxy("https://api.test", "none") is None
    assert str(find_proxy("https://direct.test", "http://own:2")) == "http://own:2"
    monkeypatch.setenv("ALL_PROXY", "proxy:3")
    assert str(find_proxy("http://api.test", "env")) == "http://proxy:3"


def test_a_proxy_of_another_kind_is_refused() -> None:
    with pytest.raises(UnusableProxyError, match="socks5://"):
        find_proxy("https://api.test", "socks5://proxy:1")


def test_a_ca_file_adds_to_what_the_system_trusts(tmp_path: Path) -> None:
    ca_file, _ = tls.make(tmp_path)
    assert trust(None) is None
    system = len(ssl.create_default_context().get_ca_certs())
    context = trust(str(ca_file))
    assert context is not None
    assert len(context.get_ca_certs()) == system + 1
