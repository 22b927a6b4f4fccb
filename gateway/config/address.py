"""Where a listener binds: ``host:port`` or ``unix:/path``; binds nothing itself."""

from __future__ import annotations

import msgspec

_UNIX = "unix:"
_LAST_PORT = 65535


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP address (``path`` is empty) or a unix socket (``path`` is set). Port 0: any free."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return _UNIX + self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """How a client on this machine reaches it, or empty: a unix socket has no such form."""
        if self.path:
            return ""
        any_host = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - told apart, not bound
        host = any_host.get(self.host, self.host)
        return f"http://{Address(host=host, port=self.port)}"


def parse_address(text: str) -> Address:
    """``127.0.0.1:8484``, ``[::1]:8484``, ``localhost:8484`` or ``unix:/run/gateway.sock``.

    Raises ``ValueError`` with the half sentence that follows "KEY ".
    """
    mend = 'must be an address such as "127.0.0.1:8484", "[::1]:8484" or "unix:/run/gateway.sock"'
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        if not path.startswith("/") or path.endswith("/") or "\0" in path:
            raise ValueError(f"{mend}: the path of a unix socket must be absolute")
        return Address(path=path)
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()):
        raise ValueError(mend)
    if int(port) > _LAST_PORT:
        raise ValueError(f"{mend}: a port is at most {_LAST_PORT}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{mend}: an IPv6 address needs its brackets")
    if not host or any(c.isspace() or c in "/[]@?#" for c in host):
        raise ValueError(mend)
    return Address(host=host, port=int(port))
