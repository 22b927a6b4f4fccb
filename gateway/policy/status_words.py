"""What an HTTP status says in words. Knows nothing of what came with it."""

from __future__ import annotations

from http import HTTPStatus


def phrase_of(status: int) -> str:
    """The usual reason phrase; "" for a status that has none."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def named(status: int) -> str:
    """The number, with its phrase if it has one."""
    phrase = phrase_of(status)
    return f"{status} ({phrase})" if phrase else str(status)


def nothing_said(status: int) -> str:
    """The sentence about an answer that has no words of its own."""
    return f"The provider answered with HTTP {named(status)} and gave no reason."


def only_says(status: int, message: str) -> bool:
    """Whether a message says no more than the status does, in words or digits, or nothing."""
    number, phrase, letters = str(status), _letters(phrase_of(status)), _letters(message)
    return not message.strip() or letters in {number, phrase or number, number + phrase}


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()
