"""When the choices of an answer have ended, and how sure that is."""

from __future__ import annotations

from gateway.protocols.choices import Choices
from gateway.streams.events import Facts


def piece(choices: Choices, index: int = 0, *, thought: bool = False, stop: bool = False) -> None:
    """One piece of a choice, as a reader takes it; ``stop`` comes with it."""
    choices.open(index)
    spoke = index in choices.speaking
    choices.speak(index, thought=thought)
    if stop:
        choices.finish(index, sure=spoke)


def stands(choices: Choices) -> tuple[bool, bool, bool, bool]:
    """Finished, awaited, doubtful, resumed."""
    facts = Facts()
    choices.settle(facts)
    return facts.finished, facts.awaited, facts.doubtful, facts.resumed


def test_a_choice_that_spoke_before_its_stop_is_over() -> None:
    choices = Choices(1)
    piece(choices)
    assert stands(choices) == (False, False, False, False)
    choices.finish(0, sure=True)
    assert stands(choices) == (True, False, False, False)


def test_a_stop_that_is_said_again_is_no_less_sure() -> None:
    """OpenRouter repeats it beside the usage."""
    choices = Choices(1)
    piece(choices)
    choices.finish(0, sure=True)
    choices.finish(0, sure=False)
    assert stands(choices) == (True, False, False, False)


def test_more_choices_are_awaited_until_the_end_marker() -> None:
    choices = Choices(2)
    piece(choices)
    choices.finish(0, sure=True)
    assert stands(choices) == (True, True, False, False)
    choices.end()
    assert stands(choices) == (True, False, False, False)


def test_a_stop_before_the_text_is_made_good_by_the_one_behind_it() -> None:
    choices = Choices(1)
    piece(choices, thought=True, stop=True)
    assert stands(choices) == (True, False, True, False)
    piece(choices)
    assert stands(choices) == (False, False, True, True)
    choices.finish(0, sure=True)
    assert stands(choices) == (True, False, False, False)


def test_who_goes_on_after_a_sure_stop_is_not_believed_again() -> None:
    choices = Choices(1)
    piece(choices)
    choices.finish(0, sure=True)
    piece(choices)
    piece(choices, stop=True)
    assert stands(choices) == (True, False, True, True)
    choices.end()
    assert stands(choices) == (True, False, False, False)


def test_a_thought_behind_a_sure_stop_is_a_trailer_and_no_content_of_another() -> None:
    choices = Choices(1)
    piece(choices)
    choices.finish(0, sure=True)
    piece(choices, thought=True)
    assert stands(choices) == (True, False, False, False)


def test_the_end_marker_ends_what_went_on() -> None:
    choices = Choices(1)
    piece(choices, stop=True)
    piece(choices)
    assert stands(choices) == (False, False, True, True)
    choices.end()
    assert stands(choices) == (True, False, False, False)
    piece(choices)
    assert stands(choices) == (True, False, False, False)
