"""ChannelDay: a day of a gateway on one platform, as the people on it see it."""

from __future__ import annotations

import asyncio
import base64
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest

from nanobot_core.testing.gateway import until
from nanobot_core.testing.model_server import Reply
from nanobot_core.testing.playing import PlayedDay, ScriptedModel, played_day, tool_call
from nanobot_core.testing.stand_in import Abilities, ChatFile, Shown, StandIn, answers
from nanobot_core.testing.suite import ConformanceSuite

_NEEDED = ("files", "message", "openai", "shell")
_LIMIT_S = 180.0
_REFUSED_LIMIT_S = 20.0
_POLL_S = 0.05
_LINE = "Line {} of a long story."
_LINES = re.compile(r"Line (\d+) of a long story\.")
_LINE_CHARS = 26
_APPROVE = re.compile(r"/approve ([0-9a-f]{6,})")
_PAIRING = re.compile(r"approve ([A-Z2-9]{8})\b")
_CODE = "Here:\n\n```python\nprint(1 < 2)\n```\n\nand `x_y_z`."
_TABLE = (
    "| a | b |\n|---|---|\n| 1 | *two* |\n\n**bold**, _it_ and [a link](https://example.org/page)"
)
_PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
_VOICE = b"OggS" + bytes(60)
_BEGINNING = "Once upon a time, there was a gateway. "

Step: TypeAlias = Callable[[PlayedDay], Awaitable[None]]


class ChannelDay(ConformanceSuite):
    """Subclass it as ``TestMyDay`` and set `stand_in`.

    It runs a real gateway with the channel and a scripted model, and plays a day: what people
    write, what they see, and what goes wrong. Steps that need what the platform does not have (see
    `Abilities`) are left out, and listed in the output of ``pytest -s``.

    Attributes:
        stand_in: the platform. The plugin of its channel is installed, and its id is the name of
            the channel.
    """

    stand_in: ClassVar[type[StandIn]]

    @pytest.mark.timeout(_LIMIT_S)
    async def test_a_day_as_people_see_it(self, tmp_path: Path) -> None:
        for plugin in _NEEDED:
            if find_spec(f"nanobot_{plugin}") is None:
                pytest.skip(f"nanobot-{plugin} is not installed")
        able = self.stand_in.abilities
        ask = [{"tool": "exec", "arguments": {"command": "echo*"}, "action": "ask"}]
        async with played_day(
            self.stand_in(),
            tmp_path / "home",
            ScriptedModel(_replies(able)),
            bert_may_write=not able.pairing,
            tools={"exec": {"sandbox": "none"}, "approval": ask},
        ) as day:
            async with day.running():
                await _play(day, _ORDINARY)
                await _play(day, _TROUBLE)
                await _stopped_in_a_turn(day)
            async with day.running():
                await day.shows("I looked around.")
                await _killed_in_a_turn(day)
            async with day.running():
                await _after_the_kill(day)
                await _play(day, _REFUSED)
            _check_the_end(day)


async def _play(
    day: PlayedDay, steps: Mapping[str, tuple[Callable[[Abilities], bool], Step]]
) -> None:
    for name, (is_possible, step) in steps.items():
        if not is_possible(day.stand_in.abilities):
            _report(f"{day.stand_in.name}: left out: {name}")
            continue
        try:
            await step(day)
        except Exception as error:
            error.add_note(f"in the step '{name}'")
            raise


# --- an ordinary day


async def _text(day: PlayedDay) -> None:
    await day.ask("Good morning", "You said: Good morning")


async def _code(day: PlayedDay) -> None:
    shown = await day.ask("show code", "print(1 < 2)")
    seen = day.stand_in.abilities.formatting
    assert "```" not in shown.text
    assert "x_y_z" in shown.text
    spans = [(kind, words.strip()) for kind, words in shown.spans]
    assert "pre" not in seen or ("pre", "print(1 < 2)") in spans
    assert "code" not in seen or ("code", "x_y_z") in spans


async def _table(day: PlayedDay) -> None:
    shown = await day.ask("show a table", "bold, it and a link")
    able = day.stand_in.abilities
    assert re.search(r"\ba\b.*\bb\b.*1.*two", shown.text, re.DOTALL)
    assert not able.table_text or re.search(r"^\s*\|?\s*1\s*\|\s*two", shown.text, re.MULTILINE)
    assert "bold" not in able.formatting or ("bold", "bold") in shown.spans
    assert "link" in able.formatting or "https://example.org/page" in shown.text


async def _long_answer(day: PlayedDay) -> None:
    chat, able = day.chat_of(), day.stand_in.abilities
    count = _story_lines(able)
    await day.ask("tell a long story", _LINE.format(count))
    parts = [message.text for message in answers(day.stand_in, chat) if _LINES.search(message.text)]
    told = [int(number) for part in parts for number in _LINES.findall(part)]
    assert told == list(range(1, count + 1))
    if able.longest_text is not None:
        assert len(parts) > 1
        assert max(map(able.measure, parts)) <= able.longest_text


async def _picture(day: PlayedDay) -> None:
    await day.ask("look", "(pictures: 1)", files=[ChatFile("look.png", _PICTURE, "image")])


async def _voice(day: PlayedDay) -> None:
    before = len(answers(day.stand_in, day.chat_of()))
    await day.say(files=[ChatFile("voice.ogg", _VOICE, "voice")])
    await until(lambda: len(answers(day.stand_in, day.chat_of())) > before)
    assert "(files: ." in answers(day.stand_in, day.chat_of())[-1].text


async def _file_out(day: PlayedDay) -> None:
    (day.home / "workspace" / "list.txt").write_text("milk\n")
    await day.say("send the list")

    def sent() -> list[ChatFile]:
        return [file for shown in answers(day.stand_in, day.chat_of()) for file in shown.files]

    await until(lambda: bool(sent()))
    assert [file.content for file in sent()] == [b"milk\n"]
    await day.shows("Here is the list")


async def _quote(day: PlayedDay) -> None:
    quoted = day.found("You said: Good morning", day.chat_of())[0]
    await day.ask("what was that?", "You said: what was that?", quote=quoted.id)
    content = str(day.model.requests[-1].body["messages"][-1]["content"])
    assert "Good morning" in content


async def _edit(day: PlayedDay) -> None:
    key = await day.say("two and two")
    await day.shows("You said: two and two")
    await day.stand_in.edit(key, "two and three")
    await day.shows("You said: two and three")


async def _command(day: PlayedDay) -> None:
    await day.ask("/status", "Session:")


async def _group(day: PlayedDay) -> None:
    group = day.stand_in.group
    await day.say("shall we have lunch?", sender=day.stand_in.bert, chat=group)
    await day.ask("lunch?", "You said: lunch?", chat=group, mention=True)
    assert not day.found("shall we", group)


async def _repeated_message(day: PlayedDay) -> None:
    day.stand_in.duplicate_next()
    await day.ask("say it once", "You said: say it once")


async def _pairing(day: PlayedDay) -> None:
    bert = day.stand_in.bert
    refusal = await day.ask("hello", "I do not know you yet", sender=bert)
    code = _PAIRING.search(refusal.text)
    assert code, refusal.text
    await day.ask(f"/pairing approve {code[1]}", "can now write")
    await day.ask("hello again", "You said: hello again", sender=bert)


async def _decision(day: PlayedDay) -> None:
    """A guest cannot answer the question; the owner can."""
    able, bert = day.stand_in.abilities, day.stand_in.bert
    place = day.stand_in.group if able.groups else day.chat_of()
    made = day.home / "workspace" / "made.txt"
    question = await day.ask("make a file", "Run exec?", chat=place, mention=able.groups)
    assert "echo made > made.txt" in question.text
    await _answer(day, question, place, bert=True)
    await day.shows("is for the owner only", place if able.groups else day.chat_of(bert))
    assert not made.exists()
    await _answer(day, question, place, bert=False)
    await day.shows("Approved.", place)
    await day.shows("It gave: Exit code: 0", place)
    assert made.exists()


async def _answer(day: PlayedDay, question: Shown, place: str, *, bert: bool) -> None:
    able, stand_in = day.stand_in.abilities, day.stand_in
    sender = stand_in.bert if bert else stand_in.anna
    if able.buttons and (able.groups or not bert):
        await stand_in.press(question, "Allow", sender=sender)
        return
    request = _APPROVE.search(question.text)
    assert request, question.text
    words = f"/approve {request[1]}"
    await day.say(words, sender=sender, chat=place if able.groups else "", mention=able.groups)


async def _stop(day: PlayedDay) -> None:
    await day.asked("wait")
    await day.ask("/stop", "Stopped.")
    await day.ask("awake?", "You said: awake?")


# --- what goes wrong


async def _too_many_calls(day: PlayedDay) -> None:
    # A draft is refused before the answer.
    day.stand_in.busy(1.0, times=2 if day.stand_in.abilities.drafts else 1)
    await day.ask("are you busy?", "You said: are you busy?")


async def _blocked(day: PlayedDay) -> None:
    bert = day.stand_in.bert
    chat = day.chat_of(bert)
    day.stand_in.block(chat)
    await day.say("are you there?", sender=bert)
    letters: list[dict[str, str]] = []
    async with asyncio.timeout(20):
        while not letters:
            await asyncio.sleep(_POLL_S)
            found = await day.control("dead_letters")
            letters = found if isinstance(found, list) else []  # type: ignore[assignment]
    assert letters[0]["reason"]
    assert not day.found("are you there?", chat)
    day.stand_in.block(chat, blocked=False)
    assert await day.control("retry", id=letters[0]["id"]) is True
    await day.shows("You said: are you there?", chat)


async def _no_network(day: PlayedDay) -> None:
    await day.delivered()
    await day.stand_in.hang_up()
    if day.stand_in.abilities.resends:
        await day.say("are you online?")
    day.gateway.skip_hour()
    await day.stand_in.come_back()
    # The hour ends the present pause between two attempts.
    day.gateway.skip_hour()
    if day.stand_in.abilities.resends:
        await day.shows("You said: are you online?")


async def _silence(day: PlayedDay) -> None:
    await day.ask("can you hear me?", "You said: can you hear me?")
    await day.delivered()
    await day.stand_in.go_silent()
    await day.say("and now?")
    day.gateway.skip_hour()
    await day.shows("You said: and now?")


# --- the gateway ends


async def _stopped_in_a_turn(day: PlayedDay) -> None:
    await day.asked("look around")
    assert await day.end(signal.SIGTERM) == 0
    day.script.replies["look around"] = Reply(text="I looked around.")


async def _killed_in_a_turn(day: PlayedDay) -> None:
    await day.asked("tell a tale")
    if day.stand_in.abilities.drafts:
        await until(lambda: bool(day.found(_BEGINNING.strip(), day.chat_of())))
        (draft,) = day.found(_BEGINNING.strip(), day.chat_of())
        # Just before, the draft would remain: nothing knows its id.
        await until(lambda: _is_noted(day.home, f"{day.chat_of()} {draft.id}"))
    await day.end(signal.SIGKILL)
    day.script.replies["tell a tale"] = Reply(text="That was the tale.")
    if day.stand_in.abilities.resends:
        await day.say("are you back?")


def _is_noted(home: Path, draft: str) -> bool:
    files = (home / "plugins").rglob("shown-drafts.json")
    return any(draft in file.read_text() for file in files)


async def _after_the_kill(day: PlayedDay) -> None:
    await day.shows("That was the tale.")
    if day.stand_in.abilities.resends:
        await day.shows("You said: are you back?")
    await until(lambda: not day.found(_BEGINNING.strip(), day.chat_of()))
    await day.ask("good night", "You said: good night")


async def _refused_credentials(day: PlayedDay) -> None:
    """The channel fails with one sentence for the owner, and is not tried again and again."""
    day.stand_in.refuse_credentials(day.stand_in.abilities.refusals[0])
    await day.stand_in.hang_up()
    day.gateway.skip_hour()
    await day.stand_in.come_back()
    day.gateway.skip_hour()
    state: dict[str, Any] = {}
    async with asyncio.timeout(_REFUSED_LIMIT_S):
        while state.get("state") != "failed":
            await asyncio.sleep(_POLL_S)
            status = await day.control("status")
            rows = status["running"] if isinstance(status, dict) else []
            assert isinstance(rows, list)
            (state,) = (
                row for row in rows if isinstance(row, dict) and row["name"] == day.stand_in.name
            )
    assert state["last_error"]
    assert "\n" not in state["last_error"]


def _check_the_end(day: PlayedDay) -> None:
    for chat in (day.chat_of(), day.chat_of(day.stand_in.bert), day.stand_in.group):
        if chat:
            _report(f"--- {day.stand_in.name} {chat}\n{day.conversation(chat)}")
    day.check_once()
    texts = [message.text for message in answers(day.stand_in, day.chat_of())]
    last = [number for number, text in enumerate(texts) if "I looked around." in text]
    assert last
    assert last[0] < next(n for n, text in enumerate(texts) if "That was the tale." in text)


def _report(text: str) -> None:
    """Show something to people; pytest keeps it unless the test fails."""
    sys.stdout.write(f"{text}\n")


def _story_lines(able: Abilities) -> int:
    return 2 * (able.longest_text or 2_000) // _LINE_CHARS + 20


def _replies(able: Abilities) -> dict[str, Reply]:
    never = asyncio.Event()
    story = "\n".join(_LINE.format(number) for number in range(1, _story_lines(able) + 1))
    return {
        "show code": Reply(text=_CODE),
        "show a table": Reply(text=_TABLE),
        "tell a long story": Reply(text=story),
        "send the list": tool_call(
            "message", '{"content": "Here is the list", "media": ["list.txt"]}'
        ),
        "make a file": tool_call("exec", '{"command": "echo made > made.txt"}'),
        "wait": Reply(gate=never),
        "look around": Reply(gate=never),
        # The events of this text are larger than what is sent of them.
        "tell a tale": Reply(text=_BEGINNING * 20, stop_after_bytes=4_000, stop="stall"),
    }


def _always(_able: Abilities) -> bool:
    return True


_ORDINARY: dict[str, tuple[Callable[[Abilities], bool], Step]] = {
    "a text": (_always, _text),
    "a block of code": (_always, _code),
    "a table": (_always, _table),
    "a long answer": (_always, _long_answer),
    "a picture": (lambda able: able.pictures, _picture),
    "a voice message": (lambda able: able.voice, _voice),
    "a file from the agent": (lambda able: able.files_out, _file_out),
    "a reply to a message": (lambda able: able.quotes, _quote),
    "an edit": (lambda able: able.edits, _edit),
    "a command": (_always, _command),
    "a mention in a group": (lambda able: able.groups, _group),
    "a message that is offered twice": (_always, _repeated_message),
    "pairing": (lambda able: able.pairing, _pairing),
    "a question to the owner": (_always, _decision),
    "a turn that is stopped": (_always, _stop),
}
_TROUBLE: dict[str, tuple[Callable[[Abilities], bool], Step]] = {
    "too many calls": (lambda able: able.asks_to_wait, _too_many_calls),
    "a blocked recipient": (lambda able: able.reports_blocking, _blocked),
    "an hour without network": (_always, _no_network),
    "a connection that goes silent": (_always, _silence),
}
_REFUSED: dict[str, tuple[Callable[[Abilities], bool], Step]] = {
    "refused credentials": (lambda able: bool(able.refusals), _refused_credentials),
}
