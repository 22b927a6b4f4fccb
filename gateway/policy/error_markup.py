"""What a page or an XML document says, without its tags. Never reads more than its beginning, and
takes time in proportion to that.
"""

from __future__ import annotations

import html
import re
from typing import Final

MAX_WORDS: Final = 300
"""Characters of the text of a page that has no title."""

_MAX_VALUE: Final = 4000

_PAGE: Final = re.compile(rb"<(?:!doctype\s{1,9}html|html|head|body|h[1-6])(?![\w:.-])", re.I)
_PAGE_IN_XML: Final = re.compile(rb"<(?:!doctype\s{1,9}html|html)(?![\w:.-])", re.I)
_XML: Final = re.compile(rb"<(?:\?xml\s|error)", re.I)
_HIDDEN: Final = re.compile(r"[\s\ufeff]*+<(?:!doctype|html)", re.I)

_TITLE: Final = re.compile(r"<title[^>]{0,200}>\s*([^<]{1,300})", re.I)
_HEADING: Final = re.compile(r"<h1(?![\w:.-])", re.I)
_NO_TEXT: Final = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|title|template)(?![\w:.-]).*?(?:</\1[^>]*+>?|\Z)"
    r"|<!\[CDATA\[|\]\]>|</?[a-z!?][^>]*+>?",
    re.I | re.S,
)
_CDATA: Final = r"\s{0,99}(?:<!\[CDATA\[)?"
_MESSAGE: Final = re.compile(
    rf"<message(?:\s[^>]{{0,99}})?>{_CDATA}([^<\]]{{1,{_MAX_VALUE}}})", re.I
)
_CODE: Final = re.compile(rf"<code(?:\s[^>]{{0,99}})?>{_CDATA}([^<\]]{{1,99}})", re.I)


def is_page(text: bytes) -> bool:
    """Whether it is HTML, for all that its beginning says."""
    start = text[:512]
    if not start.startswith(b"<"):
        return False
    return (_PAGE_IN_XML if _XML.match(start) else _PAGE).search(start) is not None


def is_xml(text: bytes) -> bool:
    """Whether it is XML, of what is no page."""
    return _XML.match(text) is not None


def is_hidden(text: str) -> bool:
    """Whether clients show nothing of it, for it begins as a page does."""
    return _HIDDEN.match(text) is not None


def title_of(page: str) -> str:
    """The title of an HTML page; "" for what has none."""
    found = _TITLE.search(page) if "<" in page else None
    return "" if found is None else html.unescape(found[1])


def words_of_page(page: str) -> str:
    """The title of a page; else what it says, from its first heading on if it has one."""
    title = title_of(page).strip()
    if title:
        return title
    heading = _HEADING.search(page)
    return text_in(page if heading is None else page[heading.start() :])[:MAX_WORDS]


def words_of_xml(source: str) -> str:
    """The message and the code of an error; else all of its text."""
    message, code = (
        "" if found is None else html.unescape(found[1]).strip()
        for found in (_MESSAGE.search(source), _CODE.search(source))
    )
    if message and code and code not in message:
        return f"{message} (code: {code})"
    return message or code or text_in(source)


def text_in(markup: str) -> str:
    """The text between the tags, without that of scripts and styles, on one line."""
    return " ".join(html.unescape(_NO_TEXT.sub(" ", markup)).split())
