"""Profiles: the form of Claude Code, broken files, and what a file may not do."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import ToolInputError
from nanobot_subagents.chat import check_profiles
from nanobot_subagents.profile import (
    MAX_BYTES,
    MAX_PROFILES,
    ProfileFolder,
    ProfileInvalid,
    parse_profile,
)

pytestmark = pytest.mark.anyio
OpenBench = Callable[..., AbstractAsyncContextManager[Any]]
WHOLE = """\
---
name: reviewer
description: Reviews code: use it after each change.
tools: Read, Grep, Bash, mcp__github__get_issue, Bash(git:*)
disallowedTools:
  - WebFetch
  - Write(/etc/*)
model: sonnet
maxTurns: 5
skills: [review]
color: red
---

You review code.
"""


def front(*lines: str, body: str = "Do it.") -> str:
    return "\n".join(["---", "description: Does it.", *lines, "---", body])


MERGES = front(
    "a0: &a0 {q: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40))
)
"""Two to the power of 39 keys, if it were read."""


def test_a_file_of_claude_code_is_read_and_what_is_not_used_is_named() -> None:
    profile = parse_profile("reviewer", WHOLE)
    assert profile.description == "Reviews code: use it after each change."
    assert profile.allow == ("read_file", "grep", "exec", "mcp_github_get_issue")
    assert profile.deny == ("web_fetch", "write_file")
    assert (profile.model, profile.max_turns) == (None, 5)
    assert profile.instructions.startswith("You review code.")
    assert "read these skills: review" in profile.instructions
    notes = "; ".join(profile.notes)
    assert "'color' is not used" in notes
    assert "Bash(git:*)" in notes
    assert "sonnet" in notes


def test_a_description_shows_people_what_it_shows_the_model() -> None:
    text = '---\ndescription: "Does\\u200b it.\\u202e\\n\\nObey."\n---\nDo it.'
    assert parse_profile("one", text).description == "Does it. Obey."


@pytest.mark.parametrize(
    ("lines", "admitted"),
    [
        ((), {"read_file", "exec"}),
        (("tools: []",), set()),
        (("tools: Bash(git:*)",), set()),
        (("tools: read_*",), {"read_file"}),
        (("disallowedTools: Bash",), {"read_file"}),
    ],
)
def test_a_profile_only_takes_tools_away(lines: tuple[str, ...], admitted: set[str]) -> None:
    rule = parse_profile("one", front(*lines)).rule
    assert {name for name in ("read_file", "exec") if rule.admits([name])} == admitted


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("one", "no front matter", "front matter"),
        ("one", "---\ndescription: x\n", "front matter"),
        ("one", "---\n[1, 2]\n---\nx", "lines 'key: value'"),
        ("one", "---\nname: [\n---\nx", "not valid YAML"),
        ("one", "---\ntools: x\n---\nx", "description"),
        ("one", front(body=" "), "instructions"),
        ("one", front("name: other"), "name"),
        ("../one", front(), "lower-case"),
        ("One", front(), "lower-case"),
        ("one", front("maxTurns: 0"), "maxTurns"),
        ("one", front("maxTurns: true"), "maxTurns"),
        ("one", front("tools: {a: 1}"), "tools"),
        ("one", front("tools: [1]"), "tools"),
        ("one", front("model: [x]"), "model"),
        ("one", front("1: x"), "lines 'key: value'"),
        ("one", front("a: " + "[" * 9_000), "too deeply"),
        ("one", MERGES, "anchor or alias"),
    ],
)
def test_a_broken_file_says_what_is_wrong(name: str, text: str, reason: str) -> None:
    with pytest.raises(ProfileInvalid, match=reason):
        parse_profile(name, text)


async def test_broken_files_are_named_and_the_others_used(bench: OpenBench, tmp_path: Path) -> None:
    async with bench() as it:
        folder = it.ctx.workspace / "agents"
        profiles = it.ctx.shared(ProfileFolder)
        assert (await profiles.load()).usable == {}
        folder.mkdir()
        secret = tmp_path / "secret.md"
        secret.write_text(front())
        (folder / "link.md").symlink_to(secret)
        (folder / "big.md").write_text(front() + "x" * MAX_BYTES)
        (folder / "latin.md").write_bytes(b"---\ndescription: caf\xe9\n---\nx")
        os.mkfifo(folder / "pipe.md")
        (folder / "good.md").write_text(front())

        found = await profiles.load()
        assert list(found.usable) == ["good"]
        assert sorted(each.partition(":")[0] for each in found.problems) == [
            f"agents/{name}.md" for name in ("big", "latin", "link", "pipe")
        ]
        check = await check_profiles(it.ctx)
        assert check.status == "warning"
        assert "agents/big.md" in check.message

        (folder / "good.md").write_text(front(body="Do something else."))
        assert (await profiles.load()).get("good").prompt == "Do something else."
        for near in ("goood", "god"):
            with pytest.raises(ToolInputError, match="did you mean good"):
                await it.spawn(agent=near)


async def test_the_number_of_profiles_is_bounded(bench: OpenBench) -> None:
    async with bench() as it:
        folder = it.ctx.workspace / "agents"
        folder.mkdir()
        for number in range(MAX_PROFILES + 1):
            (folder / f"p{number:03}.md").write_text(front())
        found = await it.ctx.shared(ProfileFolder).load()
        assert len(found.usable) == MAX_PROFILES
        assert "only the first" in found.problems[0]


async def test_a_link_in_place_of_the_folder_is_not_followed(
    bench: OpenBench, tmp_path: Path
) -> None:
    async with bench() as it:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "one.md").write_text(front())
        (it.ctx.workspace / "agents").symlink_to(elsewhere)
        found = await it.ctx.shared(ProfileFolder).load()
        assert found.usable == {}
        assert len(found.problems) == 1
