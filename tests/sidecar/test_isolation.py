"""What a sandbox is made of, what is missing for one, and that it holds where it can be had."""

from typing import Any

import pytest

from gateway.sidecar import isolation

OUTSIDE = "/var/tmp/written-from-a-sandbox"  # noqa: S108 - never written, all could
HERE: dict[str, Any] = {"platform": "linux", "root": True, "run_as": (1, 1), "bwrap": "/bin/bwrap"}


@pytest.mark.parametrize(
    ("level", "changed", "word"),
    [
        ("none", {"platform": "darwin", "root": False, "run_as": None, "bwrap": None}, None),
        ("uid", {}, None),
        ("uid", {"run_as": None}, "needs a user"),
        ("uid", {"root": False}, "runs as root"),
        ("bwrap", {}, None),
        ("bwrap", {"bwrap": None}, "apt install bubblewrap"),
        ("bwrap", {"platform": "darwin"}, "Linux only"),
    ],
)
def test_what_is_missing_is_one_sentence_with_the_mend(
    level: isolation.Level, changed: dict[str, Any], word: str | None
) -> None:
    said = isolation.missing(level, **(HERE | changed))
    assert (said is None) == (word is None)
    if said is not None and word is not None:
        assert word in said
        assert said.endswith(".")


def test_what_lies_deeper_is_mounted_later() -> None:
    argv = isolation.bwrap_argv(
        "/usr/bin/bwrap",
        roots=["/srv/a/open", "/tmp/work"],  # noqa: S108 - named, not used
        cwd="/srv/a/open",
        hidden=["/srv/a", "/srv/a/open/secret"],
        files=[("/dev/null", "/srv/key")],
    )
    places = [argv.index(path) for path in ("/srv/a", "/srv/a/open", "/srv/a/open/secret")]
    assert places == sorted(places)
    assert argv.index("/tmp") < argv.index("/tmp/work")  # noqa: S108 - named, not used
    assert argv[-3:] == ("--chdir", "/srv/a/open", "--")
    assert " --ro-bind /dev/null /srv/key --unshare-pid " in " ".join(argv)


def test_a_directory_is_not_writable_and_hidden_at_once() -> None:
    with pytest.raises(ValueError, match="/a cannot be writable and hidden"):
        isolation.bwrap_argv("bwrap", roots=["/a"], cwd="/a", hidden=["/a"])


@pytest.mark.parametrize(
    ("place", "roots", "hidden", "bound"),
    [
        ("/usr", [], ["/srv"], False),
        ("/tmp/py", [], [], True),  # noqa: S108 - named, not used
        ("/tmp/work/py", ["/tmp/work"], [], False),  # noqa: S108 - named, not used
        ("/srv/a/py", [], ["/srv/a"], True),
        ("/srv/py", [], ["/srv/py"], False),
    ],
)
def test_the_interpreter_of_the_first_process_can_be_read_wherever_it_lies(
    monkeypatch: pytest.MonkeyPatch, place: str, roots: list[str], hidden: list[str], bound: bool
) -> None:
    monkeypatch.setattr("gateway.sidecar.sandbox.PLACES", (place,))
    argv = " ".join(isolation.bwrap_argv("bwrap", roots=roots, cwd="/", hidden=hidden))
    assert (f"--ro-bind {place} {place}" in argv) == bound
    if bound:
        assert argv.index("--tmpfs") < argv.index(f"--ro-bind {place}")
