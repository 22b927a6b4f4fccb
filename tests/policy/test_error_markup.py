"""Pages and XML are told apart, and give their words without tags."""

import pytest

from gateway.policy.error_markup import (
    MAX_WORDS,
    is_hidden,
    is_page,
    is_xml,
    text_in,
    words_of_page,
    words_of_xml,
)


@pytest.mark.parametrize(
    ("text", "page"),
    [
        (b"<html>", True),
        (b"<!DOCTYPE  HTML>", True),
        (b"<!-- x --><Body class=a>", True),
        (b"<h1>No</h1>", True),
        (b"<?xml version='1.0'?><!DOCTYPE html>", True),
        (b"<HostId>x", False),
        (b"<header>x", False),
        (b"<h7>", False),
        (b"<?xml version='1.0'?><body>", False),
        (b"<Error><Body>x", False),
        (b"text <html>", False),
        (b"<" + b" " * 512 + b"<html>", False),
    ],
)
def test_a_page_is_known_by_its_beginning(text: bytes, page: bool) -> None:
    assert is_page(text) is page


def test_xml_is_known_by_its_beginning() -> None:
    assert is_xml(b"<?xml version='1.0'?><a>")
    assert is_xml(b"<ErrorResponse>")
    assert not is_xml(b"<a>")


def test_what_begins_as_a_page_is_hidden() -> None:
    assert is_hidden("\ufeff\n <!DocType html>")
    assert is_hidden("<html>")
    assert not is_hidden("<h1>No</h1>")
    assert not is_hidden("<!-- x --><html>")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<title> A &amp; B</title><h1>C</h1>", "A & B"),
        ("<title></title><a>b</a><h1 class=x>Too <b>big</b></h1> Send", "Too big Send"),
        ("<body>no <i>upstream</i><!-- secret --></body>", "no upstream"),
        ("<script>a</script><style>b", ""),
        ("<p>" + "x" * 1000, "x" * MAX_WORDS),
    ],
)
def test_the_words_of_a_page(page: str, words: str) -> None:
    assert words_of_page(page) == words


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("<Error><Code>A</Code><Message>b</Message></Error>", "b (code: A)"),
        ("<Error><Code>A</Code><Message>b A</Message></Error>", "b A"),
        ("<Error><Code>A</Code></Error>", "A"),
        ("<error><message xml:lang='en'><![CDATA[ b ]]></message></error>", "b"),
        ("<error><why>b</why> <how>c</how></error>", "b c"),
        ("<error/>", ""),
    ],
)
def test_the_words_of_xml(source: str, words: str) -> None:
    assert words_of_xml(source) == words


def test_what_is_no_tag_is_text() -> None:
    assert text_in("1 < 2 <b\n>and</b> 3 &gt; 2") == "1 < 2 and 3 > 2"
