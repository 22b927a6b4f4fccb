"""Programs and sessions are told apart by the headers that real clients send."""

from __future__ import annotations

import pytest

from gateway.policy.clients import SESSION_LIMIT, ClientApp, client_app, retry_count, session


@pytest.mark.parametrize(
    ("headers", "app"),
    [
        ({"user-agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun"}, "opencode"),
        ({"user-agent": "opencode/latest/1.18.31/cli"}, "opencode"),
        ({"user-agent": "ai-sdk/openai/2", "x-opencode-session": "ses_1"}, "opencode"),
        ({"user-agent": "codex_cli_rs/0.171.0 (Ubuntu 24.4.0; x86_64) xterm"}, "codex"),
        ({"user-agent": "codex_exec/0.171.0 (Mac OS 26; arm64)"}, "codex"),
        ({"user-agent": "codex-tui/0.156.0"}, "codex"),
        ({"user-agent": "custom", "originator": "codex_cli_rs"}, "codex"),
        ({"user-agent": "claude-cli/2.1.197 (external, cli)", "x-app": "cli"}, "claude_code"),
        ({"user-agent": "Bun/1.4", "x-claude-code-session-id": "1"}, "claude_code"),
        ({"user-agent": "litellm/1.81.10", "x-title": "Aider"}, "aider"),
        ({"user-agent": "aider/0.86.2"}, "aider"),
        ({"user-agent": "OpenAI/Python 3.57.0"}, "openai_sdk"),
        ({"user-agent": "AsyncOpenAI/Python 3.57.0"}, "openai_sdk"),
        ({"user-agent": "AsyncAzureOpenAI/Python 3.57.0"}, "openai_sdk"),
        ({"user-agent": "OpenAI/JS 6.49.0"}, "openai_sdk"),
        ({"user-agent": "my-app", "x-stainless-package-version": "3.57.0"}, "openai_sdk"),
        ({"user-agent": "AsyncAnthropic/Python 2.14.0"}, "anthropic_sdk"),
        ({"user-agent": "AnthropicBedrock/Python 2.14.0"}, "anthropic_sdk"),
        (
            {"x-stainless-package-version": "1", "anthropic-version": "2026-10-21"},
            "anthropic_sdk",
        ),
        ({"user-agent": "google-genai-sdk/3.6.1 gl-python/3.11.7"}, "google_sdk"),
        ({"user-agent": "x", "x-goog-api-client": "google-genai-sdk/1 gl-node/20"}, "google_sdk"),
        ({"user-agent": "ai/6.0.326 ai-sdk/provider-utils/4.0.46 runtime/node.js/20"}, "ai_sdk"),
        ({"user-agent": "ai-sdk/openai-compatible/2.0.92"}, "ai_sdk"),
        ({"user-agent": "ZCode/0.13 ai-sdk/openai-compatible/2.0.60"}, "ai_sdk"),
        ({"user-agent": "curl/8.5.0"}, "other"),
        ({"user-agent": "Mozilla/5.0 not-opencode openai/"}, "other"),
        ({"x-app": "cli"}, "other"),
        ({}, "other"),
    ],
)  # fmt: skip
def test_a_program_is_known_by_what_it_sends(headers: dict[str, str], app: str) -> None:
    assert client_app(headers) is ClientApp(app)


@pytest.mark.parametrize(
    "name",
    [
        "x-claude-code-session-id", "x-session-affinity", "x-opencode-session", "session_id",
        "session-id", "x-session-id", "conversation_id", "thread-id", "x-client-request-id",
    ],
)  # fmt: skip
def test_a_session_is_found_under_the_names_that_agents_use(name: str) -> None:
    assert session({name: "ses_0123abc"}) == "ses_0123abc"


def test_a_session_wins_over_a_request_id() -> None:
    assert session({"x-client-request-id": "fresh", "session_id": "kept"}) == "kept"


def test_a_session_is_printable_bounded_and_no_key() -> None:
    assert session({"session_id": "a\x1b[31m\u202eb \r\n"}) == "a[31mb"
    assert session({"session_id": "x" * 5000}) == "x" * SESSION_LIMIT
    assert session({"session_id": "\x00 "}) is None
    assert session({"session_id": ""}) is None
    assert session({}) is None
    assert "abcdefgh" not in (session({"session_id": "sk-abcdefghijklmnop"}) or "")


@pytest.mark.parametrize(
    ("value", "count"),
    [("0", 0), ("2", 2), ("0012", 12), ("", 0), ("-1", 0), ("x", 0), ("99999999", 0), ("²", 0)],
)
def test_a_clients_own_retry_is_counted_only_where_it_says_so(value: str, count: int) -> None:
    assert retry_count({"x-stainless-retry-count": value}) == count
    assert retry_count({}) == 0
