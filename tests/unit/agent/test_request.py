"""The request: the same beginning every time, and the context of the message."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from loguru import logger

from nanobot_core import ContextBlock, ContextRequested, ImageBlock, Message, TextBlock, on
from nanobot_core.agent.images import MAX_FILE_BYTES
from nanobot_core.agent.instructions import Instructions
from nanobot_core.agent.request import (
    RequestBuilder,
    RequestParts,
    with_attachments,
)
from nanobot_core.agent.shortening import RUNTIME_END, SUMMARY_HEADING
from nanobot_core.folder import Folder
from nanobot_core.messages import RUNTIME
from tests.unit.agent.conftest import PIXEL, TURN, Bench

pytestmark = pytest.mark.anyio


@pytest.fixture
def log() -> Iterator[list[tuple[str, object]]]:
    """What is logged, with the plugin that it is about."""
    found: list[tuple[str, object]] = []
    number = logger.add(
        lambda message: found.append(
            (message.record["message"], message.record["extra"].get("plugin"))
        )
    )
    yield found
    logger.remove(number)


def parts(text: str = "hello", media: Sequence[str] = (), **fields: object) -> RequestParts:
    message = Message(role="user", content=with_attachments(text, media))
    base = RequestParts(
        turn=TURN,
        message=message,
        history=(),
        model="m",
        workspace=Path("/agent"),
        budget_tokens=50_000,
        media=tuple(media),
    )
    return replace(base, **fields)  # type: ignore[arg-type]  # each test names the field it means


def builder(bench: Bench) -> RequestBuilder:
    instructions = Instructions(Folder(bench.workspace), bench.workspace / "prompts")
    return RequestBuilder(
        instructions,
        "Europe/Berlin",
        bench.clock,
        max_image_side=1_568,
    )


async def test_an_identity_file_is_read_if_there_is_one(bench: Bench) -> None:
    (bench.workspace / "IDENTITY.md").write_text("called Bo")
    sent = await builder(bench).build(parts(), bench.hooks)
    assert "## IDENTITY.md\n\ncalled Bo" in sent[0].text


async def test_parts_stand_in_their_order_joined_by_rules(bench: Bench) -> None:
    (bench.workspace / "AGENTS.md").write_text("be kind")
    (bench.workspace / "USER.md").write_text("likes tea")
    (bench.workspace / "SOUL.md").write_text("  \n")
    memory = [ContextBlock(name="Memory", text="knows things", placement="stable")]
    sent = await builder(bench).build(parts(memory=memory, workspace=bench.workspace), bench.hooks)
    identity, agents, user, remembered = sent[0].text.split("\n\n---\n\n")
    assert str(bench.workspace) in identity
    assert "terminal" in identity
    assert (agents, user) == ("## AGENTS.md\n\nbe kind", "## USER.md\n\nlikes tea")
    assert remembered == "# Memory\n\nknows things"


async def test_a_channel_without_a_hint_gets_none(bench: Bench) -> None:
    sent = await builder(bench).build(parts(turn=replace(TURN, channel="sdk")), bench.hooks)
    assert "terminal" not in sent[0].text


async def test_the_beginning_is_the_same_in_every_turn_while_time_goes_on(bench: Bench) -> None:
    made = builder(bench)
    (bench.workspace / "AGENTS.md").write_text("be kind")
    first = await made.build(parts(), bench.hooks)
    await bench.clock.advance(timedelta(days=3).total_seconds())
    second = await made.build(parts(), bench.hooks)
    assert first[0] == second[0]


async def test_files_are_read_again_when_they_change_and_dropped_when_gone(bench: Bench) -> None:
    made = builder(bench)
    file = bench.workspace / "AGENTS.md"
    file.write_text("one")
    assert "one" in (await made.build(parts(), bench.hooks))[0].text
    file.write_text("three")
    assert "three" in (await made.build(parts(), bench.hooks))[0].text
    file.unlink()
    assert "AGENTS.md" not in (await made.build(parts(), bench.hooks))[0].text


async def test_unchanged_files_are_not_read_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = builder(bench)
    (bench.workspace / "AGENTS.md").write_text("one")
    await made.build(parts(), bench.hooks)

    def refuse(self: Path, *args: object, **options: object) -> str:
        raise AssertionError(self)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert "one" in (await made.build(parts(), bench.hooks))[0].text


async def test_the_message_is_led_by_its_circumstances(bench: Bench) -> None:
    made = builder(bench)
    lines = made.runtime_lines(TURN, bench.workspace, is_quoted=False)
    message = replace(parts().message, extra={RUNTIME: lines})
    sent = await made.build(parts(message=message), bench.hooks)
    head, _, text = sent[-1].text.partition(f"{RUNTIME_END}\n\n")
    assert "not instructions" in head
    assert "Time: 2026-01-01 01:00 (Thursday, Europe/Berlin)" in head
    assert "Channel: cli, chat direct, sender me|Me" in head
    assert text == "hello"


async def test_history_stands_between_after_a_summary(bench: Bench) -> None:
    history = [Message(role="user", content="a"), Message(role="assistant", content="b")]
    sent = await builder(bench).build(parts(history=history, summary="old days"), bench.hooks)
    assert [message.text for message in sent[1:4]] == [f"{SUMMARY_HEADING}\nold days", "a", "b"]


async def test_images_are_shown_and_every_file_is_named(bench: Bench) -> None:
    image, text = bench.workspace / "cat.png", bench.workspace / "notes.txt"
    big, gone = bench.workspace / "big.jpg", bench.workspace / "gone.png"
    image.write_bytes(PIXEL)
    text.write_text("notes")
    with big.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    media = [str(path) for path in (image, text, big, gone)]
    sent = await builder(bench).build(parts("look", media), bench.hooks)
    content = sent[-1].content
    assert isinstance(content, tuple)
    encoded = base64.b64encode(PIXEL).decode()
    assert content[0] == ImageBlock("image/png", encoded, str(image))
    assert isinstance(content[1], TextBlock)
    assert len(content) == 2
    assert content[1].text == "\n\n".join(
        [
            f"[the content of {big} is not shown: it is larger than 50 MB]",
            f"[the content of {gone} is not shown: it cannot be read: No such file or directory]",
            "look",
            *(f"Attached file: {path}" for path in media),
        ]
    )


def test_a_message_without_words_still_tells_of_its_file() -> None:
    assert with_attachments("", ["/a.png"]) == "Attached file: /a.png"
    assert with_attachments("hi", []) == "hi"


class Knows:
    def __init__(self, **blocks: ContextBlock) -> None:
        self.blocks = blocks

    @on.gather_context
    def give(self, event: ContextRequested) -> list[ContextBlock]:
        return list(self.blocks.values())


async def test_blocks_of_plugins_stand_where_they_ask_and_are_cut(bench: Bench) -> None:
    stable = ContextBlock(name="Rules", text="always", placement="stable")
    fresh = ContextBlock(name="Weather", text="r" * 1_000, max_tokens=10)
    bench.plug(Knows(a=fresh), Knows(b=stable))
    sent = await builder(bench).build(parts(), bench.hooks)
    assert sent[0].text.endswith("# Rules\n\nalways")
    assert "# Weather\n\nrrr" in sent[-1].text
    assert "960 characters left out" in sent[-1].text


async def test_the_lowest_priority_is_shortened_first_and_reported_once(
    bench: Bench, log: list[tuple[str, object]]
) -> None:
    def block(name: str, priority: int) -> ContextBlock:
        return ContextBlock(name=name, text=name * 1_600, placement="stable", priority=priority)

    bench.plug(Knows(a=block("a", 2), b=block("b", 0), c=block("c", 1)))
    made = builder(bench)
    asked = parts(budget_tokens=2_700)  # of which a quarter is for these passages
    first, second = [(await made.build(asked, bench.hooks))[0].text for _ in range(2)]
    assert first == second
    assert "a" * 1_600 in first
    assert "… [500 characters left out] …" in first
    assert "# b" not in first
    expected = [
        ("the passage p0/c is cut to 1,100 of 1,600 characters because of the budget", "p0"),
        ("the passage p0/b is left out because of the budget", "p0"),
    ]
    assert log == expected
    assert made.report.losses(TURN.session_key) == [
        text.removeprefix("the passage ") for text, _ in log
    ]


async def test_stable_blocks_are_sorted_by_position_then_plugin_and_name(bench: Bench) -> None:
    def block(name: str, **position: int) -> ContextBlock:
        return ContextBlock(name=name, text="-", placement="stable", **position)

    one = Knows(a=block("History", position=900), b=block("Rules"), c=block("Advice"))
    bench.plug(one, Knows(a=block("Skills", position=300)))
    sent = await builder(bench).build(parts(memory=[block("Memory", position=100)]), bench.hooks)
    headings = [line for line in sent[0].text.splitlines() if line.startswith("# ")]
    assert headings[1:] == ["# Memory", "# Skills", "# Advice", "# Rules", "# History"]


@pytest.mark.promise(46)
async def test_a_stable_block_that_changes_is_told_with_its_plugin(
    bench: Bench, log: list[tuple[str, object]]
) -> None:
    knows = Knows(a=ContextBlock(name="Rules", text="one", placement="stable"))
    bench.plug(knows)
    made = builder(bench)
    await made.build(parts(), bench.hooks)
    await made.build(parts(), bench.hooks)
    assert log == []
    knows.blocks["a"] = ContextBlock(name="Rules", text="two", placement="stable")
    await made.build(parts(), bench.hooks)
    assert log == [
        ("the stable block p0/Rules changed, which voids the provider's prompt cache", "p0")
    ]


async def test_no_more_sessions_are_remembered_than_needed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, log: list[tuple[str, object]]
) -> None:
    from nanobot_core.agent import blocks, prefix

    for module in (blocks, prefix):
        monkeypatch.setattr(module, "_TRACKED_SESSIONS", 1)
    knows = Knows(a=ContextBlock(name="Rules", text="one", placement="stable"))
    bench.plug(knows)
    made = builder(bench)
    await made.build(parts(), bench.hooks)
    await made.build(parts(turn=replace(TURN, session_key="other")), bench.hooks)
    knows.blocks.clear()
    await made.build(parts(), bench.hooks)
    assert log == []
