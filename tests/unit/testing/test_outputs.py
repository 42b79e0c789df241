from __future__ import annotations

import importlib

import pytest

from nanobot_core.messages import ImageBlock, TextBlock
from nanobot_core.testing import output_findings, output_text
from nanobot_core.tools import ToolResult


@pytest.mark.parametrize(
    "output",
    [
        "",
        [],
        [TextBlock("a"), ImageBlock("image/png", "")],
        ToolResult("a", media=("b",), data={"c": [1]}),
    ],
)
def test_typed_outputs_have_no_findings(output: object) -> None:
    assert output_findings(output) == []


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (5, "found int"),
        ([TextBlock("a"), "b"], "found list"),
        ("a" * 1_000_001, "at most 1000000"),
        (ToolResult("a", media=(5,)), "media must be paths"),  # type: ignore[arg-type]  # the fault
        (ToolResult("a", data={"b": {1}}), "plain JSON"),  # type: ignore[dict-item]  # the fault
    ],
)
def test_what_no_tool_should_give_is_named(output: object, words: str) -> None:
    (finding,) = output_findings(output)

    assert words in finding


def test_the_text_of_an_output_is_what_the_model_reads() -> None:
    assert output_text("a") == "a"
    assert output_text([TextBlock("a"), ImageBlock("image/png", ""), TextBlock("b")]) == "a\nb"
    assert output_text(ToolResult("a")) == "a"


def test_every_public_name_of_the_kit_can_be_had() -> None:
    kit = importlib.import_module("nanobot_core.testing")

    for name in kit.__all__:
        assert getattr(kit, name) is not None
    assert set(kit.__all__) <= set(dir(kit))
    with pytest.raises(AttributeError, match="has no attribute 'FakeNothing'"):
        _ = kit.FakeNothing
