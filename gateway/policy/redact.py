"""Takes secrets out of what is logged, counted or shown. Never touches relayed bytes.

Two nets, one behind the other:

- :func:`redact` knows what secrets look like: the key forms of the providers, credentials in
  headers, URLs, JSON and prose. It needs to know nothing of the request.
- :func:`scrub` knows what *this* request carried (:func:`secrets_of`) and masks that, whatever its
  form, wherever a provider repeats it.

Every pattern is linear in the length of the text: a repeat is bounded, possessive or the last thing
in its pattern.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MASK = "[redacted]"

MARKER = "…"
"""Ends a text that was cut by :func:`bounded`."""

SLICE = 8
"""Characters of a secret that must not appear in a row; shorter secrets are masked as a whole."""

MIN_SECRET = 6
"""Credentials shorter than this are placeholders ("none", "EMPTY"); masking them would eat ordinary
words.
"""

MAX_SUMMARY = 16_384
"""Characters of a text that :func:`summary` looks at."""

_PLACEHOLDER = re.compile(r"(?=.{1,16}\Z)[a-z]+(?:[-_][a-z]+)*")
"""A plain word, which is set where a client wants a key and there is none: "ollama", "api-key"."""

_NO_CREDENTIALS = frozenset({"idempotency-key", "x-idempotency-key"})
_AWS = re.compile(r"(?:^|Credential=)(A[A-Z]{2}A[A-Z0-9]{8,128})(?:/|%2F)|Signature=([0-9a-f]+)")

_MAX_SECRET = 16_384
_MAX_SECRETS = 64
"""Credentials of one request that are sought, for each costs time; cookies count last."""

_SHORT_WORD = 20
_UNMARKED_LENGTH = 32

# A token starts after anything that is no letter or digit, after a percent-encoded one, or after an
# escape like \n.
_START = r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4}))"
_BODY = r"[A-Za-z0-9_\-.*~+/=%]"

_URL_LOGIN = re.compile(
    r"([A-Za-z][A-Za-z0-9+.\-]{0,20}+:\\?/\\?/)(?:[^\s/?#\"'<>\\@]*+@)++", re.ASCII
)
_KEY_FORMS = re.compile(
    r"(?:AIza|sk-ant-|sk-or-|sk-proj-|gsk_|gh[opusr]_|github_pat_|ya29\.|ABSK"
    rf"|bedrock-api-key-){_BODY}{{4,}}"
    rf"|A[KS]IA[A-Z0-9]{{8,}}{_BODY}*"
    rf"|{_START}(?:sk-|xai-|csk-|pplx-|nvapi-|AQ\.|1//0|eyJ){_BODY}{{4,}}"
    rf"|{_START}(?:sk_|hf_|vck_|fw_|r8_){_BODY}{{20,}}"
    rf"|{_START}tid=[0-9A-Fa-f\-]{{8}}[^\s\"'\\&]*+"
)
_UNMARKED = re.compile(
    r"(?<![A-Za-z0-9_\-])[A-Za-z0-9]{32,}+(?:\.[A-Za-z0-9]{16}(?![A-Za-z0-9]))?+(?![_\-])"
)
_SCHEME = re.compile(r"(?i:\b(Bearer|Basic))(\s++|%20|\+)([^\s\"'\\,;<>()\[\]{}&]++)")
_SCHEME_WORDS = frozenset(
    {
        "access", "auth", "authentication", "authorization", "credentials", "plan", "scheme",
        "tier", "token", "tokens",
    }
)  # fmt: skip

# What stands between a name and its value: in headers, URLs, JSON (also JSON inside a JSON string)
# and Python reprs.
_QUOTE = r"\\{0,3}+[\"']?+"
_COLON = rf"(?:{_QUOTE}\s{{0,8}}+(?:=>|[:=]|(?<=[\"\']),)\s{{0,8}}+(?:b(?=[\"']))?+{_QUOTE})"
_QUOTED = (
    r"(?:(?<=\\[\"'])[^\"'\\\r\n]++"
    r"|(?<=\")(?:[^\"\\\r\n]|\\.)++"
    r"|(?<=')(?:[^'\\\r\n]|\\.)++)"
)
_BARE = r"[^\s\"'\\&,;<>(){}\[\]]++"
_NOT_A_VALUE = r"(?!//|(?i:null|none|true|false|undefined)\b)"

# What follows a name, a colon and a blank may be a sentence ("signature: Field required"). Plain
# words are no credential: they have no digits, mix no cases, and none is longer than words are.
_LOWER = r"[a-zß-\U0010ffff]"
_WORD = (
    rf"(?:[A-Z]?{_LOWER}{{1,15}}+(?:[-_/.]{_LOWER}{{1,15}}+)*+|[A-Z]{{1,15}}+)"
    r"[.:!?]*+(?![^\s\"'\\&,;<>(){}\[\]])"
)
_EXAMPLE = r"(?:\$?+\{?+[A-Z_]{0,20}(?:KEY|TOKEN)|[<{\[]{1,2}+[A-Za-z_ \-]{1,30}+[>}\]])(?!\w)"
_EXAMPLE_ALONE = re.compile(_EXAMPLE)
_PROSE = rf"(?<=: )(?:{_WORD}|{_EXAMPLE})"
_PROSE_IN_HEADER = (
    rf"(?<=: )(?:(?!(?i:bearer|basic)\b){_WORD}(?:[ \t]++(?:{_WORD}|[\"'(<{{\[])|(?![ \t]))"
    rf"|(?:(?i:bearer)[ ])?+{_EXAMPLE})"
)

_LOGIN_HEADER = re.compile(
    rf"(?i:(?<![A-Za-z0-9])(authorization))({_COLON})(?!{_PROSE_IN_HEADER})"
    rf"(?:{_QUOTED}|(?:[A-Za-z0-9\-]++[ \t]++)?+[^\s,\"'\\]++)"
)
_COOKIE_HEADER = re.compile(
    rf"(?i:(?<![A-Za-z0-9])(cookie2?))({_COLON})(?!{_PROSE_IN_HEADER})"
    rf"(?:{_QUOTED}|(?<![\"'])[^\r\n]++)"
)
_STRONG_NAME = (
    r"(?i:(?:api|access|secret|subscription|account|private)[-_ ]?keys?"
    r"(?:[ ](?!at\b)[a-z]{1,12}){0,3}+"
    r"|(?:access|refresh|id|auth|session|security|bearer|client|gateway)[-_]?token"
    r"|client[-_]?secret|secret|password|passwd|passphrase|pwd|signature|credential|jwt)"
)
_STRONG = re.compile(
    rf"(?<![A-Za-z0-9])({_STRONG_NAME})({_COLON}){_NOT_A_VALUE}(?!{_PROSE})"
    rf"(?:{_QUOTED}|{_BARE})"
)
_WEAK = re.compile(
    rf"(?<![A-Za-z0-9])((?i:key|token|auth|sig|sas))"
    rf"(=|{_QUOTE}(?<=[\"'])\s{{0,8}}+:\s{{0,8}}+{_QUOTE})"
    rf"{_NOT_A_VALUE}(?:{_QUOTED}|{_BARE})"
)

# A pattern runs only where one of its words is: most text has none, and looking for words is cheap.
_NAMED_RULES = (
    (("authorization",), _LOGIN_HEADER),
    (("cookie",), _COOKIE_HEADER),
    (
        ("key", "token", "secret", "passw", "passphrase", "pwd", "signature", "credential", "jwt"),
        _STRONG,
    ),
    (("key", "token", "auth", "sig", "sas"), _WEAK),
)
_FORM_HINT = re.compile(
    r"aiza|sk[-_]|gh[opusr]_|github_pat_|ya29|eyj|absk|a[ks]ia|bedrock-api|xai-|csk-|pplx-|nvapi-"
    r"|aq\.|1//0|hf_|vck_|fw_|r8_|tid="
)
_NAME_HINT = re.compile(
    "authorization|cookie|key|token|secret|passw|passphrase|pwd|sig|credential|jwt|auth|sas|bearer"
    "|basic"
)

_SECRET_NAME = re.compile(
    r"key|token|secret|passw|passphrase|pwd|signature|credential|auth|cookie|jwt|assertion"
    r"|^(?:sig|sas|code|pw)$"
)

# Line ends, other controls, lone surrogates (bytes that were no UTF-8) and marks that reorder what
# is displayed.
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)
_SHORT_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def redact(text: str) -> str:
    """Mask everything that looks like a secret. Idempotent."""
    if len(text) < _SHORT_WORD and text.replace("_", "").isalpha():
        return text  # a bare word: too short for any key form, and no name stands before it
    if "@" in text:
        text = _URL_LOGIN.sub(rf"\1{MASK}@", text)
    lower = text.lower()
    if _FORM_HINT.search(lower):
        text = _KEY_FORMS.sub(MASK, text)
    if _NAME_HINT.search(lower):
        for hints, rule in _NAMED_RULES:
            if any(hint in lower for hint in hints):
                text = rule.sub(rf"\1\2{MASK}", text)
        text = _SCHEME.sub(_mask_scheme, text)
    return _UNMARKED.sub(_mask_unmarked, text) if len(text) >= _UNMARKED_LENGTH else text


def _mask_scheme(match: re.Match[str]) -> str:
    scheme, space, value = match.groups()
    word = value.rstrip(".:!?")
    if word.lower() in _SCHEME_WORDS or _EXAMPLE_ALONE.fullmatch(word):
        return match.group()
    return f"{scheme}{space}{MASK}"


def _mask_unmarked(match: re.Match[str]) -> str:
    """Keys without a prefix mix cases and digits (Mistral, Cohere, Azure); hashes do not.

    Z.ai's are a hash, a dot and sixteen characters.
    """
    run = match.group()
    if "." in run:
        return MASK
    if run.islower() or run.isupper() or run.isalpha() or run.isdigit():
        return run
    return MASK


@lru_cache(maxsize=512)
def is_secret_name(name: str) -> bool:
    """Whether a header, parameter or field of this name holds a credential."""
    return _SECRET_NAME.search(name.lower()) is not None


def redact_path(raw_target: str) -> str:
    """A request target for the log: the path as it came, credentials in the query masked."""
    path, mark, query = raw_target.partition("?")
    if not mark:
        return redact(path)
    return redact(path) + "?" + "&".join(_redact_parameter(part) for part in query.split("&"))


def _redact_parameter(part: str) -> str:
    name, equals, value = part.partition("=")
    if value and is_secret_name(unquote(name)):
        return f"{name}={MASK}"
    return redact(f"{name}{equals}{value}")


def secrets_of(headers: Iterable[tuple[str, str]], query: str = "") -> tuple[str, ...]:
    """The credentials that a request carries, in every spelling a provider may repeat.

    ``query`` is the raw query string without its question mark.
    """
    carried = [(name.lower(), value) for name, value in headers]
    carried = [each for each in carried if is_secret_name(each[0])]
    carried.sort(key=lambda field: "cookie" in field[0])
    found = dict.fromkeys(_values_in(query))
    for name, value in carried:
        if name not in _NO_CREDENTIALS:
            words = _words_in_cookies(value) if "cookie" in name else _words_in(value)
            found.update(dict.fromkeys(words))
            found.update(dict.fromkeys(_basic_login(value)))
    secrets = [secret for secret in found if len(secret) >= MIN_SECRET][:_MAX_SECRETS]
    kept = {spelling[:_MAX_SECRET] for secret in secrets for spelling in _spellings_of(secret)}
    return tuple(sorted(kept, key=lambda secret: (-len(secret), secret)))


def _values_in(query: str) -> Iterable[str]:
    """The credentials among the parameters of a query."""
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if is_secret_name(unquote(name)):
            signed = _AWS.match(value)
            yield from _without_placeholders([(signed and signed[1]) or value])


def _spellings_of(secret: str) -> Iterable[str]:
    """How a provider may repeat it, also in JSON and in JSON inside that."""
    spellings = {secret, unquote(secret), quote(secret, safe="")}
    for _ in range(2):
        spellings |= {
            json.dumps(spelling, ensure_ascii=ascii_only)[1:-1]
            for spelling in spellings
            for ascii_only in (True, False)
        }
    spellings |= {spelling.replace("/", r"\/") for spelling in spellings}
    return (spelling for spelling in spellings if len(spelling) >= MIN_SECRET)


def _words_in(value: str) -> Iterable[str]:
    """A header's value taken apart: words after a scheme, values of parameters. Of a signature of
    AWS what else it names (region, service, date) is no credential.
    """
    if value.startswith("AWS4-"):
        return [found[1] or found[2] for found in _AWS.finditer(value)]
    words = value.split()
    named = words[1:] if len(words) > 1 and words[0].isalnum() else words
    pairs = (piece.partition("=") for piece in re.split(r"[;,\s]+", value))
    return _without_placeholders([*named, *(each.strip('"') for _, _, each in pairs)])


def _words_in_cookies(value: str) -> Iterable[str]:
    pairs = (piece.partition("=") for piece in value.split(";"))
    return _without_placeholders(each.strip().strip('"') for _, _, each in pairs)


def _without_placeholders(words: Iterable[str]) -> Iterable[str]:
    return (word for word in words if word and not _PLACEHOLDER.fullmatch(word))


def _basic_login(value: str) -> Iterable[str]:
    scheme, _, encoded = value.strip().partition(" ")
    if scheme.lower() != "basic":
        return
    try:
        login = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return
    yield login
    yield login.partition(":")[2]


_ECHO = 48
_ECHO_WITHIN = 1 << 20


def scrub(text: str, secrets: Sequence[str]) -> str:
    """Mask what ``secrets`` name, and every part of one that is ``SLICE`` characters or longer."""
    return scrubber(secrets)(text)


def scrubber(secrets: Sequence[str]) -> Callable[[str], str]:
    """:func:`scrub` for many texts: taking long secrets apart is the costly half of it."""
    short = [secret for secret in secrets if len(secret) < SLICE]
    slices = {
        secret[at : at + SLICE]
        for secret in secrets
        if len(secret) >= SLICE
        for at in range(len(secret) - SLICE + 1)
    }
    return lambda text: _scrub(text, short, slices)


def cleaner(secrets: Sequence[str]) -> Callable[[str], str]:
    """Both nets, for many texts of one request."""
    scrub = scrubber(secrets)
    return lambda text: redact(scrub(text))


def _scrub(text: str, short: Sequence[str], slices: set[str]) -> str:
    for secret in short:
        text = text.replace(secret, MASK)
    if not slices:
        return text
    out: list[str] = []
    done = 0
    for at in range(len(text) - SLICE + 1):
        if text[at : at + SLICE] in slices:
            if not out or at > done:
                out += (text[done:at], MASK)
            done = at + SLICE
    out.append(text[done:])
    return "".join(out)


def repeats(text: str, request: bytes) -> bool:
    """Whether a message repeats a part of the request's body: a prompt must not reach the log.

    ``request`` is looked at up to a megabyte; parts shorter than ``_ECHO`` characters (a model's
    name, a parameter's) are what messages are about.
    """
    body = request[:_ECHO_WITHIN]
    step = _ECHO // 2
    probe = text[:MAX_SUMMARY].encode("utf-8", "replace")
    return any(
        probe[at : at + step] in body and probe[at : at + _ECHO] in body
        for at in range(0, max(0, len(probe) - _ECHO + 1), step)
    )


def bounded(text: str, limit: int = 300) -> str:
    """One line of at most ``limit`` characters, cut with a marker, control characters escaped.

    Cut after redaction, never before it: half a key may look like nothing.
    """
    line = escape_controls(text[: limit + 1].strip())
    if len(line) <= limit and len(text) <= limit + 1:
        return line
    return line[: limit - len(MARKER)] + MARKER


def escape_controls(text: str) -> str:
    """The text with every character escaped that would end a line or change how it is displayed."""
    return text if text.isprintable() else _CONTROL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return _SHORT_ESCAPES.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def summary(text: str, secrets: Sequence[str] = (), limit: int = 300) -> str:
    """What may be logged of a text that a provider sent: scrubbed, redacted, one line, bounded."""
    if len(text) > MAX_SUMMARY:
        # A word that the cut goes through may be half a secret; it is left out.
        text = text[:MAX_SUMMARY]
        text = text[: max(text.rfind(" "), text.rfind("\n"), 0) or MAX_SUMMARY] + MARKER
    return bounded(redact(scrub(text, secrets)), limit)
