# No postponed annotations here: the tools below take types that are local to a test.

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from nanobot_core.errors import ToolInputError
from nanobot_core.messages import JsonObject, JsonValue, TextBlock
from nanobot_core.testing import call_in
from nanobot_core.tools import ToolContext, ToolResult, tool
from nanobot_core.tools.function import FunctionTool


def part(schema: JsonValue, *path: str | int) -> JsonValue:
    """The schema at `path` below `schema`."""
    for step in path:
        if isinstance(schema, dict):
            schema = schema[str(step)]
        else:
            assert isinstance(schema, list)
            schema = schema[int(step)]
    return schema


def names(tool: FunctionTool) -> list[str]:
    properties = tool.parameters["properties"]
    assert isinstance(properties, dict)
    return list(properties)


class Place(BaseModel):
    """A place."""

    title: str
    inner: "Place | None" = None


def test_a_function_describes_the_tool() -> None:
    @tool
    def look_up(
        word: Annotated[str, Field(min_length=1)],
        count: Annotated[int, Field(ge=1, le=10)] = 5,
        mode: Literal["exact", "near"] = "exact",
    ) -> str:
        """Look up a word.

        Use it for single words.

        Args:
            word: the word,
                as it is written.
            count (int): most entries.

        Returns:
            Nothing the model needs to know.
        """
        return word * count

    assert look_up.name == "look_up"
    assert look_up.description == "Look up a word.\n\nUse it for single words."
    assert look_up.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "word": {
                "type": "string",
                "minLength": 1,
                "description": "the word, as it is written.",
            },
            "count": {
                "type": "integer",
                "minimum": 1,
                "maximum": 10,
                "default": 5,
                "description": "most entries.",
            },
            "mode": {"type": "string", "enum": ["exact", "near"], "default": "exact"},
        },
        "required": ["word"],
    }


def test_options_are_those_of_a_tool() -> None:
    @tool(name="peek", read_only=True, compactable=True, timeout_s=3, idempotent=True)
    def look() -> str:
        return ""

    assert (look.name, look.read_only, look.compactable) == ("peek", True, True)
    assert (look.timeout_s, look.idempotent, look.exclusive) == (3, True, False)
    assert look.concurrency_safe
    assert look.description == ""
    assert names(look) == []


def test_local_references_are_resolved_and_titles_of_schemas_left_out() -> None:
    @tool
    def go(place: Place, title: str = "") -> str:
        return place.title + title

    place = part(go.parameters, "properties", "place", "properties")

    assert "$defs" not in go.parameters
    assert part(place, "title") == {"type": "string"}
    assert part(place, "inner", "anyOf", 0) == {"type": "object"}
    assert part(go.parameters, "properties", "title") == {"type": "string", "default": ""}


def test_defaults_that_look_like_keywords_are_kept() -> None:
    @tool
    def label(options: dict[str, str] = {"title": "none"}) -> str:  # noqa: B006 - never changed
        return options["title"]

    assert part(label.parameters, "properties", "options", "default") == {"title": "none"}


@pytest.mark.anyio
async def test_parameters_may_be_called_like_attributes_of_a_model(tmp_path: Path) -> None:
    @tool
    def draw(schema: str, copy: bool, model_config: int = 1, p_x: int = 2) -> str:
        return f"{schema} {copy} {model_config} {p_x}"

    assert names(draw) == ["schema", "copy", "model_config", "p_x"]
    arguments: JsonObject = {"schema": "s", "copy": True, "p_x": 3}
    assert await draw.execute(call_in(tmp_path), arguments) == "s True 1 3"


@pytest.mark.anyio
async def test_the_context_is_given_and_not_part_of_the_schema(tmp_path: Path) -> None:
    @tool
    async def where(context: ToolContext, suffix: str) -> str:
        return f"{context.workspace}{suffix}"

    assert names(where) == ["suffix"]
    assert await where.execute(call_in(tmp_path), {"suffix": "!"}) == f"{tmp_path}!"


@pytest.mark.anyio
async def test_a_sync_function_runs_outside_of_the_loop(tmp_path: Path) -> None:
    @tool
    def thread() -> str:
        return threading.current_thread().name

    assert await thread.execute(call_in(tmp_path), {}) != threading.current_thread().name


@pytest.mark.anyio
async def test_arguments_that_do_not_fit_are_named(tmp_path: Path) -> None:
    @tool
    def go(place: Place) -> str:
        return place.title

    with pytest.raises(ToolInputError, match=r"place\.title should be string, found integer; far"):
        await go.execute(call_in(tmp_path), {"place": {"title": 5}, "far": True})


@dataclass
class Point:
    x: int


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("value", "output"),
    [
        (None, ""),
        ("text", "text"),
        (ToolResult("x", is_error=True), ToolResult("x", is_error=True)),
        ([TextBlock("a")], [TextBlock("a")]),
        ([], "[]"),
        ([TextBlock("a"), 1], '[{"text": "a"}, 1]'),
        ({"name": "Jürgen"}, '{"name": "Jürgen"}'),
        ({1: Path("a")}, '{"1": "a"}'),
        (Point(3), '{"x": 3}'),
        (Place(title="home"), '{"title": "home", "inner": null}'),
        (b"\xff", '"_w=="'),
        (object, "\"<class 'object'>\""),
    ],
)
async def test_what_a_function_returns_reaches_the_model(
    tmp_path: Path, value: object, output: object
) -> None:
    @tool
    def give() -> object:
        return value

    assert await give.execute(call_in(tmp_path), {}) == output
