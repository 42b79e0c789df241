"""What the model reads of skills, in whole turns with a scripted model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core import (
    CommandCall,
    ContextBlock,
    ContextRequested,
    PluginContext,
    ToolCall,
    TurnInfo,
)
from nanobot_skills import SkillSource, skills_sources
from nanobot_skills.chat import answer_skills
from nanobot_skills.plugin import SkillsPlugin
from nanobot_skills.prompt import build_blocks

if TYPE_CHECKING:
    from conftest import MakeShelf, Shelf, Start, WriteSkill

pytestmark = pytest.mark.anyio


async def blocks(shelf: Shelf, *tools: str, is_owner: bool = True) -> dict[str, ContextBlock]:
    library = shelf.library
    skills = library.visible(await library.load(), is_owner=is_owner)
    return {each.name: each for each in build_blocks(skills, ("read_skill", *tools), library)}


class Package:
    """A plugin that contributes skills."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @skills_sources
    def sources(self, ctx: PluginContext) -> Iterable[SkillSource]:
        return (SkillSource(self._folder, "a package"),)


# --- whole turns -----------------------------------------------------------------------------


async def test_active_skills_come_whole_and_others_by_description(
    start: Start, write: WriteSkill, tmp_path: Path
) -> None:
    write(tmp_path / "package", "house-rules", "Rules.", "Be brief.", always="true")
    write(tmp_path / "workspace" / "skills", "letters", "How to write letters.", "Dear …")
    async with start(
        "hello", plugins={"package": Package(tmp_path / "package")}, skills={"disabled": ["s*"]}
    ) as agent:
        await agent.bot.run("hi")
        prompt = agent.prompt()

    active = prompt.index("# Active Skills\n\n## house-rules\n\nBe brief.")
    listed = prompt.index("\n\n# Skills\n\n")
    assert active < listed
    assert "- **letters** (skills/letters): How to write letters." in prompt[listed:]
    assert "house-rules" not in prompt[listed:]
    assert "Dear …" not in prompt


async def test_the_prompt_is_the_same_from_turn_to_turn_until_a_skill_changes(
    start: Start, write: WriteSkill, tmp_path: Path
) -> None:
    folder = tmp_path / "workspace" / "skills"
    for number in range(20):
        write(folder, f"skill-{number}", f"Does {number}.")
    async with start("1", "2", "3", "4") as agent:
        for text in ("one", "two", "three"):
            await agent.bot.run(text)
        write(folder, "skill-7", "Does more.")
        await agent.bot.run("four")
        prompts = [agent.prompt(number) for number in range(4)]

    assert prompts[0] == prompts[1] == prompts[2]
    assert prompts[3] == prompts[0].replace("Does 7.", "Does more.")


async def test_a_skill_whose_tools_are_not_offered_is_not_mentioned(start: Start) -> None:
    async with start("1") as agent:
        await agent.bot.run("hi")
        without = agent.prompt()
    async with start("1", tools=("cron", "search_memory")) as agent:
        await agent.bot.run("hi")
        offered = agent.prompt()

    for text in ("**cron**", "search_memory", "**weather**", "**tmux**"):
        assert text not in without, text
    assert "**cron** (built-in): " in offered
    assert "## memory\n\n" in offered
    assert "**summarize**" in without


async def test_the_owner_can_replace_the_introduction_of_the_list(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "home" / "prompts" / "skills" / "skills.md"
    file.parent.mkdir(parents=True)
    file.write_text("Read before you act.\n")
    async with start("1") as agent:
        await agent.bot.run("hi")

        assert "# Skills\n\nRead before you act.\n\n- **" in agent.prompt()


async def test_the_model_reads_a_skill_that_it_sees(start: Start, write: WriteSkill) -> None:
    call = ToolCall("c1", "read_skill", {"name": "summarize"})
    async with start(call, "done") as agent:
        await agent.bot.run("summarise this")
        result = agent.provider.requests[1].messages[-1]

    assert result.role == "tool"
    assert "# Summarise" in result.text


async def test_the_owner_approves_in_the_chat_and_the_text_appears(
    start: Start, write: WriteSkill, tmp_path: Path
) -> None:
    write(tmp_path / "workspace" / "skills", "rules", "Rules.", "Be brief.", always="true")
    async with start("1", "2") as agent:
        await agent.bot.run("hi")
        listed = (await agent.bot.run("/skills")).reply
        shown = (await agent.bot.run("/skills show rules")).reply
        approved = (await agent.bot.run("/skills approve rules")).reply
        await agent.bot.run("hi again")
        before, after = agent.prompt(0), agent.prompt(1)

    assert "Be brief." not in before
    assert "(skills/rules): Rules. (not always active until the owner approves it)" in before
    assert "- **rules** (awaiting approval): Rules." in (listed or "")
    assert "Be brief." in (shown or "")
    assert (approved or "").startswith("Approved this content of 'rules':")
    assert "# Active Skills\n\n## rules\n\nBe brief." in after


# --- guests ----------------------------------------------------------------------------------

GUEST = TurnInfo(
    id="t1",
    session_key="chat:1",
    channel="chat",
    chat_id="1",
    sender_id="guest",
    source="chat",
)


@pytest.mark.parametrize(
    ("guests", "seen"),
    [("installed", {"packaged"}), ("all", {"packaged", "private", "mine"}), ("none", set())],
)
async def test_guests_get_what_packages_install_unless_the_owner_decides_otherwise(
    make_shelf: MakeShelf, write: WriteSkill, tmp_path: Path, guests: str, seen: set[str]
) -> None:
    write(tmp_path / "package", "packaged")
    write(tmp_path / "mine", "mine")
    shelf = make_shelf(
        sources=[SkillSource(tmp_path / "package", "a package")],
        folders=[str(tmp_path / "mine")],
        guests=guests,
    )
    write(shelf.folder, "private")
    plugin = SkillsPlugin()
    await plugin.start(shelf.context)
    event = ContextRequested(turn=GUEST, model="m", history=(), tools=("read_skill",))

    text = "".join(block.text for block in await plugin.gather_context(event) or ())
    listed = await answer_skills(shelf.context, CommandCall(turn=GUEST, name="skills", text=""))

    for name in ("packaged", "private", "mine"):
        assert (f"**{name}**" in text) is (name in seen)
        assert (f"**{name}**" in listed) is (name in seen)


@pytest.mark.parametrize("text", ["show demo", "approve demo"])
async def test_guests_neither_read_nor_approve_skills_by_command(
    shelf: Shelf, write: WriteSkill, text: str
) -> None:
    write(shelf.folder, "demo", always="true")

    reply = await answer_skills(shelf.context, CommandCall(turn=GUEST, name="skills", text=text))

    assert "for the owner only" in reply
    assert (await shelf.get("demo")).awaits_approval


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("show nothing", "There is no skill 'nothing'; see: nanobot skills list."),
        ("show broken", "SKILL.md:1: begin the file with a line"),
        ("approve plain", "Approved this content of 'plain'"),
        ("delete plain", "Usage: /skills, /skills show NAME, /skills approve NAME"),
        ("", "broken/SKILL.md:1:"),
    ],
)
async def test_replies_to_the_owner(shelf: Shelf, write: WriteSkill, text: str, reply: str) -> None:
    write(shelf.folder, "broken").write_text("x")
    write(shelf.folder, "plain")
    call = CommandCall(turn=GUEST, name="skills", text=text, is_owner=True)

    assert reply in await answer_skills(shelf.context, call)


# --- limits ----------------------------------------------------------------------------------


async def test_descriptions_are_shortened_before_a_skill_is_left_out(
    make_shelf: MakeShelf, write: WriteSkill
) -> None:
    shelf = make_shelf(max_list_tokens=600)
    for number in range(20):
        write(shelf.folder, f"skill-{number:02}", f"{number} " + "words " * 100)

    text = (await blocks(shelf))["Skills"].text

    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(text) <= 2_400
    assert len(lines) == 20
    assert all(line.endswith("…") for line in lines)
    assert len({len(line) for line in lines}) == 1


async def test_when_nothing_else_helps_packages_go_first_and_the_rest_is_counted(
    make_shelf: MakeShelf, write: WriteSkill, tmp_path: Path
) -> None:
    shelf = make_shelf(
        sources=[SkillSource(tmp_path / "package", "a package")], max_list_tokens=400
    )
    for number in range(10):
        write(shelf.folder, f"z-own-{number}", "words " * 100)
        write(tmp_path / "package", f"a-packaged-{number}", "words " * 100)

    text = (await blocks(shelf))["Skills"].text

    assert len(text) <= 1_600
    assert text.count("**z-own-") == 10
    left_out = 10 - text.count("**a-packaged-")
    assert left_out > 0
    assert text.endswith(f"\n- {left_out} more that are not listed")


async def test_without_room_or_skills_there_is_no_passage(
    make_shelf: MakeShelf, write: WriteSkill
) -> None:
    shelf = make_shelf(max_list_tokens=0, max_active_tokens=0)
    assert await blocks(shelf) == {}
    write(shelf.folder, "demo")
    assert await blocks(shelf) == {}


async def test_an_active_skill_without_room_is_listed_instead(
    make_shelf: MakeShelf, write: WriteSkill, tmp_path: Path
) -> None:
    package = tmp_path / "package"
    write(package, "a-long", "Long.", "word " * 2_000, always="true")
    write(package, "b-short", "Short.", "Be brief.", always="true")
    shelf = make_shelf(sources=[SkillSource(package, "p")], max_active_tokens=1_000)

    found = await blocks(shelf)

    assert found["Active Skills"].text == "## b-short\n\nBe brief."
    assert "- **a-long** (p (other)): Long." in found["Skills"].text


async def test_an_unavailable_skill_takes_one_line_that_names_what_is_missing(
    shelf: Shelf, write: WriteSkill
) -> None:
    write(
        shelf.folder,
        "demo",
        requires_bins="no-such-program",
        requires_env="NO_SUCH_VARIABLE",
        always="true",
    )

    text = (await blocks(shelf))["Skills"].text

    assert text.splitlines()[-1] == (
        "- **demo** (skills/demo): unavailable, needs the program no-such-program and the "
        "variable NO_SUCH_VARIABLE"
    )


async def test_a_description_of_many_lines_is_one_line(shelf: Shelf, write: WriteSkill) -> None:
    write(shelf.folder, "demo", "one\n# two\n\n- three")

    text = (await blocks(shelf))["Skills"].text

    assert text.splitlines()[-1] == "- **demo** (skills/demo): one # two - three"
