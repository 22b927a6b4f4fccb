"""What can go wrong and whose fault it is; holds no policy and does no I/O.

Every failure that the gateway names itself is a :class:`GatewayError` with a :class:`Code`. The
codes are part of the contract with users: they appear in ``error.code``, in ``x-gateway-error`` and
in the log.
"""

from __future__ import annotations

from enum import StrEnum


class Origin(StrEnum):
    """Whose side a failure is on."""

    CLIENT = "client"
    UPSTREAM = "upstream"
    GATEWAY = "gateway"


class Code(StrEnum):
    """The names of the gateway's own failures, as users see them."""

    STREAM_TRUNCATED = "upstream_stream_truncated"
    STALLED = "upstream_stalled"
    TIMEOUT = "upstream_timeout"
    UNREACHABLE = "upstream_unreachable"
    INVALID_RESPONSE = "upstream_invalid_response"
    UNAVAILABLE = "upstream_unavailable"
    REQUEST_TOO_LARGE = "request_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    BAD_REQUEST = "bad_request"
    UNKNOWN_PROVIDER = "unknown_provider"
    PROVIDER_NOT_CONFIGURED = "provider_not_configured"
    NOT_IMPLEMENTED = "not_implemented"
    UNAUTHORIZED = "unauthorized"
    CLIENT_LIMIT = "client_limit"
    DRAINING = "gateway_draining"
    OVERLOADED = "gateway_overloaded"
    INTERNAL = "gateway_internal_error"


STATUS: dict[Code, int] = {
    Code.STREAM_TRUNCATED: 502,
    Code.STALLED: 504,
    Code.TIMEOUT: 504,
    Code.UNREACHABLE: 502,
    Code.INVALID_RESPONSE: 502,
    Code.UNAVAILABLE: 503,
    Code.REQUEST_TOO_LARGE: 413,
    Code.HEADERS_TOO_LARGE: 431,
    Code.BAD_REQUEST: 400,
    Code.UNKNOWN_PROVIDER: 404,
    Code.PROVIDER_NOT_CONFIGURED: 404,
    Code.NOT_IMPLEMENTED: 501,
    Code.UNAUTHORIZED: 401,
    Code.CLIENT_LIMIT: 429,
    Code.DRAINING: 503,
    Code.OVERLOADED: 503,
    Code.INTERNAL: 500,
}
"""The HTTP status each code has while no byte of an answer has been sent."""


class GatewayError(Exception):
    """A failure the gateway reports in its own name.

    ``message`` is one sentence for a person: what happened, where, and what they can do. It must
    not contain keys, ids, byte counts or durations when ``retryable`` is false: clients match
    digits anywhere in the text.
    """

    def __init__(
        self,
        origin: Origin,
        code: Code,
        message: str,
        *,
        retryable: bool = False,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.origin = origin
        self.code = code
        self.message = message
        self.retryable = retryable
        self.status = STATUS[code] if status is None else status

    def but_saying(self, message: str) -> GatewayError:
        """The same failure in other words."""
        return GatewayError(
            self.origin, self.code, message, retryable=self.retryable, status=self.status
        )
