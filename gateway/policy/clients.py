"""Which program asks, in which session, and whether it is retrying. Never trusted for access.

Everything here is what the client says of itself in headers. It is good for telling requests apart
in logs and metrics, and never for a decision about access.

``headers`` is a mapping that finds names without regard to case (aiohttp's), or one with lower-case
names.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from gateway.policy.redact import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

SESSION_LIMIT = 128
"""Characters of a session's name that are kept."""

SESSION_HEADERS = (
    "x-claude-code-session-id",
    "x-session-affinity",
    "x-opencode-session",
    "session_id",
    "session-id",
    "x-session-id",
    "conversation_id",
    "conversation-id",
    "thread-id",
    # Codex puts its conversation here; SDKs put a fresh id for each request, so it is the last
    # resort.
    "x-client-request-id",
)


class ClientApp(StrEnum):
    """The programs that are told apart; a metric label."""

    OPENCODE = "opencode"
    CODEX = "codex"
    CLAUDE_CODE = "claude_code"
    AIDER = "aider"
    OPENAI_SDK = "openai_sdk"
    ANTHROPIC_SDK = "anthropic_sdk"
    GOOGLE_SDK = "google_sdk"
    AI_SDK = "ai_sdk"
    OTHER = "other"


# Agents before the SDKs that they are built on: the first product of a User-Agent is the program
# itself.
_PRODUCTS: tuple[tuple[str, ClientApp], ...] = (
    ("opencode", ClientApp.OPENCODE),
    ("codex", ClientApp.CODEX),
    ("claude-cli", ClientApp.CLAUDE_CODE),
    ("claude-code", ClientApp.CLAUDE_CODE),
    ("aider", ClientApp.AIDER),
    ("openai/", ClientApp.OPENAI_SDK),
    ("asyncopenai/", ClientApp.OPENAI_SDK),
    ("azureopenai/", ClientApp.OPENAI_SDK),
    ("asyncazureopenai/", ClientApp.OPENAI_SDK),
    ("anthropic", ClientApp.ANTHROPIC_SDK),
    ("asyncanthropic", ClientApp.ANTHROPIC_SDK),
    ("google-genai-sdk/", ClientApp.GOOGLE_SDK),
    ("ai-sdk/", ClientApp.AI_SDK),
    ("ai/", ClientApp.AI_SDK),
)


def client_app(headers: Mapping[str, str]) -> ClientApp:
    """The program that asks, by the headers that it is known to send."""
    if "x-opencode-session" in headers or "x-opencode-client" in headers:
        return ClientApp.OPENCODE
    if "x-claude-code-session-id" in headers:
        return ClientApp.CLAUDE_CODE
    if headers.get("originator", "").lower().startswith("codex"):
        return ClientApp.CODEX
    if headers.get("x-title", "").lower() == "aider":
        return ClientApp.AIDER
    agent = headers.get("user-agent", "").lower()
    for product, app in _PRODUCTS:
        if agent.startswith(product):
            return app
    if "ai-sdk/" in agent:
        return ClientApp.AI_SDK
    if "x-stainless-package-version" in headers:
        # The SDKs of both makers come from one generator; only Anthropic's sends a version of the
        # API.
        return ClientApp.ANTHROPIC_SDK if "anthropic-version" in headers else ClientApp.OPENAI_SDK
    if "google-genai-sdk/" in headers.get("x-goog-api-client", ""):
        return ClientApp.GOOGLE_SDK
    return ClientApp.OTHER


def session(headers: Mapping[str, str]) -> str | None:
    """The client's own name for its session, printable and bounded; None where it has none."""
    for name in SESSION_HEADERS:
        value = headers.get(name)
        if value:
            printable = "".join(character for character in value if character.isprintable()).strip()
            if printable:
                return redact(printable)[:SESSION_LIMIT]
    return None


def retry_count(headers: Mapping[str, str]) -> int:
    """Which retry of the client's own this is; 0 for a first try and where it does not say."""
    value = headers.get("x-stainless-retry-count", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 4 else 0
