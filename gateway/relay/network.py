"""What lies between here and a provider: proxies, trust, socket options. Sends nothing itself."""

from __future__ import annotations

import socket
import ssl
import urllib.request
from typing import Any

import aiohttp
from yarl import URL


class UnusableProxyError(Exception):
    """The proxy that configuration or environment name is of a kind that cannot be used."""


def find_proxy(base_url: str, setting: str) -> URL | None:
    """The proxy on the way to ``base_url``: ``none``, a URL, or ``env`` for what HTTPS_PROXY,
    HTTP_PROXY, ALL_PROXY and NO_PROXY say. Raises :class:`UnusableProxyError`.
    """
    if setting == "none":
        return None
    if setting == "env":
        base = URL(base_url)
        authority = base.host_port_subcomponent or ""
        if urllib.request.proxy_bypass(base.host or "") or urllib.request.proxy_bypass(authority):
            return None
        proxies = urllib.request.getproxies()
        setting = proxies.get(base.scheme) or proxies.get("all") or ""
        if not setting:
            return None
    if "://" not in setting:
        setting = "http://" + setting
    proxy = URL(setting)
    if proxy.scheme not in ("http", "https") or proxy.host is None:
        raise UnusableProxyError(
            f"a proxy must be an http or https URL, and this one begins with {proxy.scheme}://"
        )
    return proxy


def trust(ca_file: str | None) -> ssl.SSLContext | None:
    """What TLS trusts: the system's authorities and those in ``ca_file``; None for the system's.

    Raises OSError and ssl.SSLError for a file that cannot be used.
    """
    if ca_file is None:
        return None
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def login_of(proxy: URL | None) -> str | None:
    """What a proxy's login is in ``Proxy-Authorization``; None where its URL has none."""
    if proxy is None or proxy.user is None:
        return None
    return aiohttp.encode_basic_auth(proxy.user, proxy.password or "")


def open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices a peer that is gone for good, which no timeout of ours might."""
    family, kind, protocol, _, _ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        option: Any = getattr(socket, name, None)
        if option is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened
