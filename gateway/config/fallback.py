"""Whether each provider's ``fallback`` can work; compares providers and contacts none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.config.model import AUTO, Provider
from gateway.config.presets import PRESETS
from gateway.config.tables import quoted
from gateway.policy.routing import nearest_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


def check(
    available: Mapping[str, Provider],
    unavailable: Mapping[str, str],
    broken: Collection[str],
    faults: list[str],
) -> None:
    """Add a fault for each fallback that is unknown, unusable, or ends where it began.

    ``broken`` are providers whose own faults have been told: nothing is said about them here.
    """
    for provider in available.values():
        for target in provider.fallback:
            if target in broken:
                continue
            place = f"providers.{quoted(provider.name)}.fallback"
            reason = _reason(provider, target, available, unavailable)
            if reason:
                faults.append(f"{place} {reason}.")
    faults.extend(_loops(available))


def _reason(
    provider: Provider,
    target: str,
    available: Mapping[str, Provider],
    unavailable: Mapping[str, str],
) -> str | None:
    """Why ``target`` cannot stand in for ``provider``, as the rest of a sentence."""
    if target == provider.name:
        return "names the provider itself: name another one"
    if target in unavailable:
        return f"names {target}, which cannot be used yet: {unavailable[target]}"
    if target not in available:
        guess = nearest_name(target, available)
        hint = f"did you mean {guess}" if guess else f"add a table [providers.{quoted(target)}]"
        return f"names {quoted(target)}, which is no provider: {hint}"
    other = available[target]
    if other.api_key is None:
        return (
            f"names {target}, which has no api_key of its own: set [providers.{quoted(target)}] "
            "api_key, for the client's key is not sent to another provider"
        )
    mine, others = speaks(provider), speaks(other)
    if mine and others and not mine & others:
        return f"names {target}, which speaks another protocol: name one that speaks the same"
    return None


def speaks(provider: Provider) -> frozenset[str]:
    """The protocols of a provider; none where they are not known."""
    if provider.protocol != AUTO:
        return frozenset((provider.protocol,))
    preset = PRESETS.get(provider.name)
    return frozenset(preset.speaks) if preset else frozenset()


def _loops(available: Mapping[str, Provider]) -> Iterator[str]:
    done: set[str] = set()

    def walk(name: str, trail: tuple[str, ...]) -> Iterator[str]:
        if name in trail:
            loop = " -> ".join((*trail[trail.index(name) :], name))
            yield f"providers.{quoted(trail[-1])}.fallback makes a loop, {loop}: take {name} out."
        elif name in available and name not in done:
            for target in available[name].fallback:
                if target != name:
                    yield from walk(target, (*trail, name))
            done.add(name)

    for name in available:
        yield from walk(name, ())
