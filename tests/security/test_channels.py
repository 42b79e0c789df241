"""All channels on their stand-ins: who may write, and what bad input does."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot_core.testing import ChatFile, Person, StandIn
from nanobot_core.testing.gateway import until
from tests.security.played_channel import PlayedChannel, hello, played
from tests.stand_ins import installed_stand_ins

pytestmark = pytest.mark.anyio
FOUND = installed_stand_ins()
each_channel = pytest.mark.parametrize("kind", FOUND, ids=[kind.name for kind in FOUND])


# --- who may write


@each_channel
async def test_a_stranger_who_takes_the_names_of_the_owner_is_not_admitted(
    kind: type[StandIn], tmp_path: Path
) -> None:
    async with played(kind, tmp_path) as there:
        await hello(there)
        private = there.stand_in.private(kind.bert)
        for name in (kind.anna.id, kind.anna.name, f"{kind.anna.id}|x", "a\x1f\u202eb"):
            stranger = Person(kind.bert.id, name)
            await there.stand_in.say("it is me", sender=stranger, chat=private)
        await until(lambda: attempts(there, "it is me") > 0)
        await hello(there, "done")
    assert set(texts(there)) == {"hello", "done"}


@each_channel
async def test_what_is_not_for_the_agent_is_not_admitted(
    kind: type[StandIn], tmp_path: Path
) -> None:
    async with played(kind, tmp_path) as there:
        stand_in = there.stand_in
        await hello(there)
        await there.send("I wrote this")
        if kind.group:
            await stand_in.say("shall we have lunch?", chat=kind.group)
            await stand_in.say("me too", sender=kind.bert, chat=kind.group, mention=True)
            await stand_in.say("and me", chat=kind.group, mention=True)
            await there.send("I wrote this", chat=there.inbox.stored[-1].chat_id)
            await there.heard("and me")
        await hello(there, "done")
    assert {message.sender_id for message in there.inbox.stored} == {kind.anna.id}
    assert attempts(there, "I wrote this") == 0
    # A panel of Mochat adds what was said before as a quotation.
    assert not {"shall we have lunch?", "me too"} & set(texts(there))


@each_channel
async def test_the_people_of_one_group_are_those_of_its_settings(
    kind: type[StandIn], tmp_path: Path
) -> None:
    if not kind.group:
        pytest.skip("it has no groups")
    groups = {kind.group: {"allow_from": [kind.bert.id]}}
    async with played(kind, tmp_path, groups=groups) as there:
        await hello(there)
        await there.stand_in.say("may I?", chat=kind.group, mention=True)
        await there.stand_in.say("I may", sender=kind.bert, chat=kind.group, mention=True)
        await there.heard("I may")
        await hello(there, "done")
    assert [m.sender_id for m in there.inbox.stored if m.is_group] == [kind.bert.id]


# --- bad input


@each_channel
async def test_after_long_texts_and_files_that_lie_the_channel_answers(
    kind: type[StandIn], tmp_path: Path
) -> None:
    async with played(kind, tmp_path) as there:
        await hello(there)
        await there.stand_in.say("x" * 1_000_000)
        if kind.abilities.pictures:
            for name in ("../../etc/passwd", "a\t|\u202eb.png", "x" * 300 + ".png", "con.txt\x1f"):
                lie = ChatFile(name, b"MZ\0 no picture", "image")
                await there.stand_in.say("look", files=[lie])
        await hello(there, "done")
    assert {message.sender_id for message in there.inbox.stored} == {kind.anna.id}
    saved = [Path(file) for message in there.inbox.stored for file in message.media]
    assert all(file.resolve().is_relative_to(there.ctx.media.folder) for file in saved)
    assert all(file.name.isprintable() for file in saved)


def texts(there: PlayedChannel) -> list[str]:
    return [message.content for message in there.inbox.stored]


def attempts(there: PlayedChannel, text: str) -> int:
    return sum(text in message.content for message in there.inbox.attempts)
