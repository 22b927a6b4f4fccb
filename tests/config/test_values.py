"""Single values: what is accepted, and the half sentence for what is not."""

import math
import re

import pytest

from gateway.config import values
from gateway.config.values import Reader

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("reader", "value", "result"),
    [
        (values.flag, True, True),
        (values.text, "x", "x"),
        (values.texts, ["a", "b"], ("a", "b")),
        (values.texts, [], ()),
        (values.names_of_variables, ["PATH", "_x1"], ("PATH", "_x1")),
        (values.mapping, {"a": "b"}, {"a": "b"}),
        (values.word("a", "b"), "b", "b"),
        (values.seconds, 1, 1.0),
        (values.seconds, 0.25, 0.25),
        (values.seconds_from_0, 0, 0.0),
        (values.ratio, 100.0, 100.0),
        (values.count(1), 1, 1),
        (values.size, "1KiB", 1024),
        (values.size_or_unlimited, "unlimited", None),
        (values.size_or_unlimited, 5, 5),
        (values.size_above_0, "1KiB", 1024),
        (values.memory, "16MiB", 2**24),
        (values.memory, "unlimited", None),
        (
            values.host_names,
            ["Build.example.com", "[::1]", "10.0.0.1"],
            ("build.example.com", "::1", "10.0.0.1"),
        ),
        (values.keepalive, "auto", "auto"),
        (values.keepalive, "off", "off"),
        (values.keepalive, 25, 25.0),
        (values.listen, "[::1]:80", "[::1]:80"),
        (values.absolute_path, "/etc/x", "/etc/x"),
        (values.absolute_paths, ["/a", "/b"], ("/a", "/b")),
        (values.base_url, "https://api.example.com/", "https://api.example.com"),
        (values.base_url, "http://127.0.0.1:8000/api//", "http://127.0.0.1:8000/api"),
        (values.base_url, "http://[::1]:1/a%20b", "http://[::1]:1/a%20b"),
        (values.proxy, "env", "env"),
        (values.proxy, "none", "none"),
        (values.proxy, "http://user:word@proxy:3128/", "http://user:word@proxy:3128"),
    ],
)
def test_a_right_value_is_read(reader: Reader, value: object, result: object) -> None:
    assert reader(value) == result


@pytest.mark.parametrize(
    ("reader", "value", "words"),
    [
        (values.flag, 1, "must be true or false, not 1"),
        (values.flag, "true", 'must be true or false, not "true"'),
        (values.text, " ", "must be a string"),
        (values.text, 3, "must be a string"),
        (values.texts, "a", "must be a list of strings"),
        (values.texts, ["a", 1], "must be a list of strings"),
        (values.texts, ["a", "a"], "names something twice"),
        (values.names_of_variables, ["A B"], "names of environment variables"),
        (values.mapping, {"a": 1}, "must be a table of strings"),
        (values.mapping, ["a"], "must be a table of strings"),
        (values.word("finish", "none"), "finsh", 'not "finsh"; did you mean "finish"?'),
        (values.word("finish"), 1, 'must be one of "finish", not 1'),
        (values.seconds, 0, "must be a number of seconds above 0, not 0"),
        (values.seconds, -1.5, "above 0, not -1.5"),
        (values.seconds, "10", 'above 0, not "10"'),
        (values.seconds, True, "above 0, not True"),
        (values.seconds, math.inf, "above 0, not inf"),
        (values.seconds, math.nan, "above 0, not nan"),
        (values.seconds, 10**400, "above 0, not 1000"),
        (values.seconds_from_0, -1, "0 or more, not -1"),
        (values.ratio, "x", "must be a number, 0 or more"),
        (values.count(1), 0, "must be a whole number, 1 or more, not 0"),
        (values.count(0), 1.0, "must be a whole number, 0 or more, not 1.0"),
        (values.count(0), True, "must be a whole number"),
        (values.size, "unlimited", "must be a size"),
        (values.size_or_unlimited, "lots", 'number of bytes, or "unlimited"'),
        (values.keepalive, "on", 'must be "auto", "off" or seconds above 0, not "on"'),
        (values.keepalive, 0, "above 0, not 0"),
        (values.listen, 8484, "must be a string"),
        (values.absolute_path, "etc/x", "must be an absolute path"),
        (values.absolute_paths, ["/a", "b"], "must be a list of absolute paths"),
        (values.base_url, "api.example.com", "it must begin with http:// or https://"),
        (values.base_url, "ftp://api.example.com", "it must begin with http:// or https://"),
        (values.base_url, "https://", "it has no host"),
        (values.base_url, "https://host:0", "a port that is none"),
        (values.base_url, "https://host:x", "its host or port cannot be read"),
        (values.base_url, "https://[::1", "its host or port cannot be read"),
        (values.base_url, "https://ho st", "must be a URL"),
        (values.base_url, "https://host\n", "must be a URL"),
        (values.base_url, 7, "must be a URL"),
        (values.base_url, f"https://me:{SECRET}@host", "without user and password"),
        (values.base_url, f"https://host/v1?key={SECRET}", "without ? and #"),
        (values.base_url, "https://host/?", "without ? and #"),
        (values.base_url, f"https://host/#{SECRET}", "without ? and #"),
        (values.proxy, f"socks5://me:{SECRET}@proxy", 'must be "env", "none" or the URL'),
        (values.proxy, f"http://proxy/{SECRET}", "what follows the host has no meaning"),
        (values.proxy, "yes", 'must be "env", "none" or the URL'),
    ],
)
def test_a_wrong_value_is_refused_with_the_mend(reader: Reader, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as no:
        reader(value)
    assert SECRET not in str(no.value)
    assert "\n" not in str(no.value)


def test_a_quoted_value_is_short_and_in_one_line() -> None:
    assert values.shown("a\n\n b") == '"a b"'
    assert len(values.shown("x" * 1000)) < 50


def test_a_mapping_cannot_be_changed_afterwards() -> None:
    with pytest.raises(TypeError):
        values.mapping({"a": "b"})["a"] = "c"  # type: ignore[index]


@pytest.mark.parametrize("value", [0, 1, "1KiB", "2GiB", 2**64])
def test_a_size_that_would_break_every_request_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r'must be between "4KiB" and "1GiB"'):
        values.size_from(4096)(value)
    assert values.size_from(4096)("64KiB") == 65536


@pytest.mark.parametrize(
    ("reader", "value"),
    [
        (values.size_above_0, 0),
        (values.memory, "1MiB"),
        (values.memory, "much"),
        (values.host_names, ["localhost:8081"]),
        (values.host_names, ["http://x"]),
        (values.host_names, ["*"]),
        (values.host_names, "localhost"),
    ],
)
def test_what_the_sidecar_cannot_use_is_refused(reader: Reader, value: object) -> None:
    with pytest.raises(ValueError, match=r"^must be "):
        reader(value)
