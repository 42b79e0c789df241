"""Prompt texts: those of packages, and the owner's in their place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loguru import logger

from nanobot_core import PluginRejected, prompt
from nanobot_core.prompts import CORE, MAX_PROMPT_BYTES, fill_prompt, prompt_problems, read_prompt
from nanobot_core.testing import FakePluginContext

TEXT = "# Dream\n\nFacts about {{person}}:\n{{facts}}\n"
REFERENCE = "nanobot_dreamer:dream"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The texts of an installed package that has not been imported."""
    texts = tmp_path / "site" / "nanobot_dreamer" / "prompts"
    texts.mkdir(parents=True)
    (texts / "dream.md").write_text(TEXT)
    (texts.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(texts.parents[1])
    yield texts
    sys.modules.pop("nanobot_dreamer", None)


@pytest.fixture
def ctx(tmp_path: Path) -> FakePluginContext:
    return FakePluginContext(tmp_path, plugin_id="dreamer")


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    found: list[str] = []
    number = logger.add(lambda message: found.append(message.record["message"]), level="WARNING")
    yield found
    logger.remove(number)


def replace(ctx: FakePluginContext, content: str | bytes, name: str = "dream.md") -> Path:
    ctx.prompts_dir.mkdir(parents=True, exist_ok=True)
    file = ctx.prompts_dir / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_a_text_is_filled_in_one_pass(ctx: FakePluginContext, package: Path) -> None:
    filled = prompt(ctx, REFERENCE, person="Anna", facts="- {{person}} {curly} {{other}}")
    assert filled == "# Dream\n\nFacts about Anna:\n- {{person}} {curly} {{other}}"


def test_the_text_of_the_owner_replaces_it(ctx: FakePluginContext, package: Path) -> None:
    replace(ctx, 'Only {"json": 1}: {{ facts }}')
    assert prompt(ctx, REFERENCE, person="Anna", facts="tea") == 'Only {"json": 1}: tea'


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("", None, "expected a text, found an empty file; delete it to use the original"),
        (" \n\n", None, "expected a text, found an empty file; delete it to use the original"),
        (b"a\n\xff", 2, "expected text in UTF-8"),
        ("x" * (MAX_PROMPT_BYTES + 1), None, "expected at most 40,000 bytes"),
        (
            "one\n{{facts}} of {{persom}}",
            2,
            "unknown placeholder {{persom}}; this text has {{facts}}, {{person}}",
        ),
    ],
)
def test_one_that_cannot_be_used_is_reported_and_the_original_used(
    ctx: FakePluginContext,
    package: Path,
    warnings: list[str],
    content: str | bytes,
    line: int | None,
    reason: str,
) -> None:
    file = replace(ctx, content)
    assert prompt(ctx, REFERENCE, person="Anna", facts="tea").startswith("# Dream")
    assert warnings == [f"{file} is not used: {reason}; see nanobot config check"]
    (found,) = prompt_problems(ctx.prompts_dir.parent, {"dreamer": "nanobot_dreamer"})
    assert (found.file, found.line, found.expected) == (str(file), line, reason)


def test_a_file_that_replaces_nothing_is_reported(ctx: FakePluginContext, package: Path) -> None:
    replace(ctx, "text", "dreams.md")
    replace(ctx, "text", "dream.txt")
    core = ctx.prompts_dir.parent
    (core / "identity.md").write_text("You are Bo in {{workspace}}.")
    (core / "identify.md").write_text("text")
    (core / "absent").mkdir()
    found = [str(each) for each in prompt_problems(core, {"dreamer": "nanobot_dreamer"})]
    known = ", ".join(sorted(path.name for path in CORE.glob("*.md")))
    assert found == [
        f"{core}/identify.md: expected one of {known}, found identify.md",
        f"{core}/absent: expected the id of an installed plugin, found absent",
        f"{core}/dreamer/dream.txt: expected one of dream.md, found dream.txt",
        f"{core}/dreamer/dreams.md: expected one of dream.md, found dreams.md",
    ]
    assert "nanobot_dreamer" not in sys.modules


def test_a_plugin_learns_what_is_wrong_with_its_call(ctx: FakePluginContext, package: Path) -> None:
    for reference in ("nanobot_dreamer:dreams", "nanobot_absent:dream", "dream"):
        with pytest.raises(PluginRejected, match="which does not exist"):
            prompt(ctx, reference)
    with pytest.raises(PluginRejected, match=r"needs \{\{facts\}\}; pass a value"):
        prompt(ctx, REFERENCE, person="Anna")


def test_an_empty_value_leaves_no_gap(tmp_path: Path) -> None:
    text = read_prompt(CORE, tmp_path / "absent", "identity")
    values = {"platform": "p", "workspace": "w", "format": ""}
    assert fill_prompt(text, values).endswith("Workspace: w")
    assert fill_prompt("a\n\n{{format}}\n\nb", values) == "a\n\nb"
