"""What the simulated model says: text, reasoning, tool calls, usage; no protocol, no clock.

The same request, words and seed give the same answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gateway.sim.script import Script

PARAGRAPHS: Final = (
    "The tide turns twice a day because the sea is pulled by the moon and, more weakly, by"
    " the sun. Where the coast narrows like a funnel, as in the Severn estuary, the water can"
    " rise by 14 metres. A tide table is little more than a sum of cosines, worked out once by"
    " brass machines and now by any pocket calculator.",
    "A loaf needs four things: flour, water, salt and time. Yeast eats the sugar that enzymes"
    " free from the starch, and the gas it leaves is caught in a net of gluten. At 22 °C the"
    " dough doubles in two hours, at 6 °C overnight, and the slower one tastes better: ask any"
    " baker in Besançon.",
    "A lighthouse is known by its rhythm, not by its brightness. The lens that made this"
    " possible is Fresnel's: rings of prisms that bend the light of one small flame into a"
    " beam seen 30 km away. Keepers floated the turning lens on a bath of mercury, so that a"
    " child could push its 4 tonnes with one finger.",
    "Bees tell each other the way by dancing. The angle of the run against gravity is the"
    " angle of the flight against the sun; one second of waggling means about a kilometre."
    " When the sun moves, the dancers turn with it, even in the dark of the hive: a clock, a"
    " compass and a language in one milligram of brain.",
    "A knot weakens the rope it holds, because the fibres on the outside of the bend carry"
    " more than their share. A figure eight keeps about 75 % of the strength, a bowline nearer"
    " 65 %. The best knots are those that can still be untied after the storm; sailors call"
    " the others naïve.",
)

THOUGHTS: Final = (
    "The question is simple enough. First I should recall the facts, then check the numbers,"
    " and then say it in plain words without leaving out what matters. A short example will"
    " help more than a definition."
)


class Finish(StrEnum):
    """How an answer ends; each protocol has its own word for each."""

    STOP = "stop"
    LENGTH = "length"
    WEIRD = "weird"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the request offers: its name and the JSON schema of its arguments."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a request asks for.

    ``prompt`` is the user's last text; ``answers_tool``: the last message is a tool's result.
    """

    model: str = ""
    stream: bool = False
    prompt: str = ""
    choices: int = 1
    tools: tuple[Tool, ...] = ()
    answers_tool: bool = False
    include_usage: bool = False
    sse: bool = True
    prompt_tokens: int = 1


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: the tool's name, its arguments as JSON text in pieces."""

    name: str
    pieces: tuple[str, ...]

    @property
    def arguments(self) -> str:
        """The whole JSON text."""
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer in no protocol yet; ``choices`` holds each choice's text in pieces."""

    id: str
    model: str
    created: int
    choices: tuple[tuple[str, ...], ...]
    reasoning: tuple[str, ...] = ()
    call: ToolCall | None = None
    finish: Finish = Finish.STOP
    reason: str | None = None
    prompt_tokens: int = 1

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return "".join(self.choices[0])

    @property
    def cached_tokens(self) -> int:
        """How many of the prompt's tokens came from a cache."""
        return self.prompt_tokens // 2

    @property
    def reasoning_tokens(self) -> int:
        """How many tokens were thought, not said."""
        return len(self.reasoning)

    @property
    def text_tokens(self) -> int:
        """How many tokens were said, over all choices and the tool call."""
        called = len(self.call.pieces) if self.call else 0
        return sum(len(pieces) for pieces in self.choices) + called

    @property
    def completion_tokens(self) -> int:
        """Everything that was generated."""
        return self.text_tokens + self.reasoning_tokens


def compose(ask: Ask, script: Script, *, number: int, created: int) -> Answer:
    """The answer to the ``number``-th request of a server; ``created`` is seconds since 1970."""
    call = tool_call(ask, script)
    count = min(max(ask.choices, 1), 128)
    choices = tuple(
        () if call else _pieces(_text(ask.prompt, script.words, script.seed + index), script)
        for index in range(count)
    )
    return Answer(
        id=f"sim{number:021d}",
        model=ask.model,
        created=created,
        choices=choices,
        reasoning=split(THOUGHTS) if script.answer == "reasoning" else (),
        call=call,
        finish=Finish(script.finish),
        reason=script.reason,
        prompt_tokens=ask.prompt_tokens,
    )


def split(text: str) -> tuple[str, ...]:
    """The text in pieces like tokens: a word with the space before it, long words in two."""
    return tuple(re.findall(r"\s*\S{1,9}", text))


def tool_call(ask: Ask, script: Script) -> ToolCall | None:
    """The call that the script asks for, if the request has such a tool and brings no result."""
    if script.answer != "tool" or ask.answers_tool:
        return None
    wanted = (script.tool or "").lower()
    tools = [tool for tool in ask.tools if not wanted or tool.name.lower() == wanted]
    if not tools:
        return None
    arguments = json.dumps(sample(tools[0].schema) or {}, ensure_ascii=False)
    third = max(1, -(-len(arguments) // 4))
    pieces = tuple(arguments[at : at + third] for at in range(0, len(arguments), third))
    return ToolCall(tools[0].name, pieces)


_BY_NAME: Final[Mapping[str, str]] = {
    "command": "echo hello from the simulator",
    "cmd": "echo hello from the simulator",
    "city": "Paris",
    "location": "Paris",
    "path": "README.md",
    "file_path": "README.md",
    "pattern": "*.md",
    "url": "http://127.0.0.1/",
}


def sample(schema: Any, name: str = "", depth: int = 0) -> Any:
    """A small value that fits a JSON schema; of objects what is required, or the first property."""
    if not isinstance(schema, Mapping) or depth > 8:
        return "sim"
    if isinstance(choices := schema.get("enum"), list) and choices:
        return choices[0]
    if "const" in schema:
        return schema["const"]
    if isinstance(options := schema.get("anyOf") or schema.get("oneOf"), list) and options:
        return sample(options[0], name, depth + 1)
    kind = schema.get("type")
    kind = str(kind[0] if isinstance(kind, list) and kind else kind or "").lower()
    match kind:
        case "object":
            return _sample_object(schema, depth)
        case "" if depth == 0 or "properties" in schema:
            return _sample_object(schema, depth)
        case "array":
            item = sample(schema.get("items", {"type": "string"}), name, depth + 1)
            return [item] if name != "command" else ["echo", "hello"]
        case "integer" | "number":
            return schema.get("minimum", 7)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _BY_NAME.get(name, "sim")


def _sample_object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    required = schema.get("required")
    names = [name for name in required if name in properties] if isinstance(required, list) else []
    return {name: sample(properties[name], name, depth + 1) for name in names or [*properties][:1]}


def _text(prompt: str, words: int, seed: int) -> str:
    echoed = " ".join(prompt.split()[-6:])[:80]
    opening = (
        f"You said “{echoed}”. Here is something about it." if echoed else "Here is something."
    )
    said = opening.split()
    at = seed
    while len(said) < words:
        said += PARAGRAPHS[at % len(PARAGRAPHS)].split()
        at += 1
    return " ".join(said[:words])


def _pieces(text: str, script: Script) -> tuple[str, ...]:
    pieces = split(text)
    if not script.size:
        return pieces
    at = script.after if isinstance(script.after, int) else len(pieces)
    filler = " The tide comes in, the tide goes out."
    big = (filler * (script.size // len(filler) + 1))[: script.size]
    return (*pieces[:at], big, *pieces[at:])
