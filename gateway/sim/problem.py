"""What can be wrong with a request or a provider, in each provider's own words; builds no bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One error as OpenAI, Anthropic and Google would each name it. ``retry_after`` is seconds."""

    status: int
    message: str
    openai_type: str
    anthropic_type: str
    gemini_status: str
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None


PROBLEMS: Final[Mapping[str, Problem]] = {
    "server_error": Problem(
        status=500,
        message="The server had an error while processing your request. Sorry about that!",
        openai_type="server_error",
        anthropic_type="api_error",
        gemini_status="INTERNAL",
        code="server_error",
    ),
    "overloaded": Problem(
        status=503,
        message="The model is overloaded. Please try again later.",
        openai_type="server_error",
        anthropic_type="overloaded_error",
        gemini_status="UNAVAILABLE",
        code="overloaded",
    ),
    "rate_limit": Problem(
        status=429,
        message="Rate limit reached for requests per minute. Please slow down.",
        openai_type="requests",
        anthropic_type="rate_limit_error",
        gemini_status="RESOURCE_EXHAUSTED",
        code="rate_limit_exceeded",
    ),
    "quota": Problem(
        status=429,
        message="You exceeded your current quota, please check your plan and billing details.",
        openai_type="insufficient_quota",
        anthropic_type="billing_error",
        gemini_status="RESOURCE_EXHAUSTED",
        code="insufficient_quota",
    ),
    "timeout": Problem(
        status=504,
        message="The request took too long to process.",
        openai_type="server_error",
        anthropic_type="timeout_error",
        gemini_status="DEADLINE_EXCEEDED",
        code="timeout",
    ),
    "invalid_request": Problem(
        status=400,
        message="Invalid request.",
        openai_type="invalid_request_error",
        anthropic_type="invalid_request_error",
        gemini_status="INVALID_ARGUMENT",
        code="bad_tool_call",
        param="messages[3].tool_calls",
    ),
    "context_length": Problem(
        status=400,
        message="The input exceeds the context window of this model.",
        openai_type="invalid_request_error",
        anthropic_type="invalid_request_error",
        gemini_status="INVALID_ARGUMENT",
        code="context_length_exceeded",
        param="messages",
    ),
    "authentication": Problem(
        status=401,
        message="Incorrect API key provided.",
        openai_type="invalid_request_error",
        anthropic_type="authentication_error",
        gemini_status="UNAUTHENTICATED",
        code="invalid_api_key",
    ),
    "permission": Problem(
        status=403,
        message="Your key is not allowed to use this model.",
        openai_type="invalid_request_error",
        anthropic_type="permission_error",
        gemini_status="PERMISSION_DENIED",
        code="model_not_allowed",
        param="model",
    ),
    "not_found": Problem(
        status=404,
        message="The model does not exist or you do not have access to it.",
        openai_type="invalid_request_error",
        anthropic_type="not_found_error",
        gemini_status="NOT_FOUND",
        code="model_not_found",
        param="model",
    ),
    "request_too_large": Problem(
        status=413,
        message="The request exceeds the maximum allowed number of bytes.",
        openai_type="invalid_request_error",
        anthropic_type="request_too_large",
        gemini_status="INVALID_ARGUMENT",
        code="request_too_large",
    ),
    "unusual": Problem(
        status=500,
        message="Something happened that has no name yet.",
        openai_type="unusual_error",
        anthropic_type="unusual_error",
        gemini_status="UNUSUAL",
        code="unusual",
    ),
}
"""By the names of ``type=`` (``gateway.sim.params.ERROR_TYPES``)."""

_BY_STATUS: Final[Mapping[int, str]] = {
    400: "invalid_request",
    401: "authentication",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "request_too_large",
    422: "invalid_request",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}


def for_status(status: int) -> Problem:
    """What a provider most likely means by an HTTP status."""
    name = _BY_STATUS.get(status, "server_error" if status >= 500 else "invalid_request")
    return PROBLEMS[name]


def refusal(message: str, *, code: str, status: int = 400, param: str | None = None) -> Problem:
    """The simulator's own error about a request that it cannot understand."""
    known = for_status(status)
    return Problem(
        status=status,
        message=message,
        openai_type=known.openai_type,
        anthropic_type=known.anthropic_type,
        gemini_status=known.gemini_status,
        code=code,
        param=param,
    )
