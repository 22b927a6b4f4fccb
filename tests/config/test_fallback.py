"""Fallbacks that cannot work are found before they are needed."""

from gateway.config.credentials import Secret
from gateway.config.fallback import check
from gateway.config.model import Provider

KEY = Secret("env:KEY", "k")


def provider(
    name: str, *fallback: str, protocol: str = "auto", api_key: Secret | None = KEY
) -> Provider:
    return Provider(
        name=name, base_url="https://x", fallback=fallback, protocol=protocol, api_key=api_key
    )


def faults(*providers: Provider, broken: set[str] | None = None) -> list[str]:
    found: list[str] = []
    check({p.name: p for p in providers}, {"azure": "set base_url"}, broken or set(), found)
    return found


def test_a_provider_of_the_same_protocol_with_a_key_of_its_own_is_accepted() -> None:
    first = provider("first", "second", protocol="anthropic", api_key=None)
    assert faults(first, provider("second", protocol="anthropic")) == []


def test_a_server_of_ones_own_may_speak_anything() -> None:
    assert faults(provider("anthropic", "mine"), provider("mine")) == []


def test_an_unknown_provider_names_the_nearest() -> None:
    assert faults(provider("a", "bakcup"), provider("backup")) == [
        "providers.a.fallback names bakcup, which is no provider: did you mean backup."
    ]


def test_an_unknown_provider_that_is_near_to_none_tells_how_to_add_one() -> None:
    assert faults(provider("a", "zzz")) == [
        "providers.a.fallback names zzz, which is no provider: add a table [providers.zzz]."
    ]


def test_a_provider_that_needs_a_setting_first_says_which() -> None:
    assert faults(provider("a", "azure")) == [
        "providers.a.fallback names azure, which cannot be used yet: set base_url."
    ]


def test_a_provider_without_a_key_of_its_own_is_refused() -> None:
    [fault] = faults(provider("a", "b"), provider("b", api_key=None))
    assert fault.startswith("providers.a.fallback names b, which has no api_key of its own: set ")


def test_a_provider_of_another_protocol_is_refused() -> None:
    one, two = provider("one", "two", protocol="anthropic"), provider("two", protocol="gemini")
    assert faults(one, two) == [
        "providers.one.fallback names two, which speaks another protocol: "
        "name one that speaks the same."
    ]


def test_built_in_providers_that_share_no_protocol_are_refused() -> None:
    [fault] = faults(provider("codex", "gemini"), provider("gemini"))
    assert "another protocol" in fault
    assert faults(provider("openai", "gemini"), provider("gemini")) == []


def test_a_provider_cannot_stand_in_for_itself() -> None:
    assert faults(provider("a", "a")) == [
        "providers.a.fallback names the provider itself: name another one."
    ]


def test_a_loop_is_told_once() -> None:
    assert faults(provider("a", "b"), provider("b", "c"), provider("c", "a")) == [
        "providers.c.fallback makes a loop, a -> b -> c -> a: take a out."
    ]


def test_two_ways_to_the_same_provider_are_no_loop() -> None:
    assert (
        faults(provider("a", "b", "c"), provider("b", "d"), provider("c", "d"), provider("d")) == []
    )


def test_nothing_is_said_about_a_provider_whose_own_faults_were_told() -> None:
    assert faults(provider("a", "b"), broken={"b"}) == []
