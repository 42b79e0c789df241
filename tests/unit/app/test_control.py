"""The control socket: commands to a running gateway."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from nanobot_core import AuthenticationFailed, Nanobot
from nanobot_core.app import client as client_module, control, wire
from nanobot_core.app.client import ControlClient
from nanobot_core.app.wire import ControlError
from nanobot_core.contracts.client import ignore_event
from nanobot_core.events import RunEvent, TextStreamed, ToolCallStarted
from nanobot_core.messages import JsonObject
from tests.gateways import (
    LIMIT_S,
    GatewayProcess,
    Platform,
    running,
    turn_begun,
    until,
    write_config,
)
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio
ASK = {"approval": [{"tool": "*", "action": "ask"}]}


@asynccontextmanager
async def gateway(home: Path, **sections: Any) -> AsyncIterator[tuple[Nanobot, ControlClient]]:
    write_config(home, **sections)
    async with running(home) as bot:
        yield bot, ControlClient(home / "gateway")


@asynccontextmanager
async def connected(
    home: Path,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(str(home / "gateway" / "control.sock"))
    try:
        yield reader, writer
    finally:
        writer.close()


async def tell(home: Path, data: bytes) -> dict[str, Any]:
    """Send bytes and return what comes back."""
    async with connected(home) as (reader, writer):
        writer.write(data)
        async with asyncio.timeout(10):
            answer: dict[str, Any] = json.loads(await reader.readline())
        return answer


def asked(text: str, session: str = "cli:t") -> JsonObject:
    return {"text": text, "session": session}


async def test_status_tells_how_the_gateway_is(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (_, client):
        found = await client.call("status")

        assert isinstance(found, dict)
        assert (found["ready"], found["turns"]) == (True, 0)
        assert found["depth"] == {"inbound": 0, "outbound": 0, "dead": 0}


async def test_status_tells_account_and_last_messages_of_a_channel(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform)
        async with running(tmp_path):
            before = await _channel_once(tmp_path, lambda row: row["state"] == "running")
            await platform.say("say hello")
            after = await _channel_once(
                tmp_path, lambda row: row["last_received"] and row["last_sent"]
            )

    assert before["account"] == "@chatty"
    assert before["last_received"] is before["last_sent"] is None
    assert before["last_contact"] <= min(after["last_received"], after["last_sent"])


async def _channel_once(home: Path, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return what the status says of the channel as soon as `holds` is true of it."""
    client = ControlClient(home / "gateway")
    async with asyncio.timeout(LIMIT_S):
        while True:
            status = await client.call("status")
            assert isinstance(status, dict)
            assert isinstance(status["running"], list)
            rows = [row for row in status["running"] if isinstance(row, dict)]
            (row,) = (row for row in rows if row["kind"] == "channel")
            if holds(row):
                return row
            await asyncio.sleep(0.01)


async def test_a_provider_that_is_left_out_is_reported(tmp_path: Path) -> None:
    dead = ScriptedPlugin(AuthenticationFailed("p", "wrong key"))
    preset: JsonObject = {"model": dead.model, "fallback_models": ["chatty/model"]}
    async with gateway(tmp_path, models={"strong": preset}) as (bot, client):
        await bot.plugins.register(dead, "dead")
        outcome = await bot.run("hi", model="strong")
        found = await client.call("cool_downs")
        status = (await bot.run("/status")).reply or ""

    name = dead.provider.name
    assert outcome.model == "chatty/model"
    assert isinstance(found, list)
    (entry,) = found
    assert isinstance(entry, dict)
    assert (entry["provider"], entry["model"], entry["reason"]) == (name, None, "wrong key")
    assert f"- provider {name}: left out for " in status


async def test_commands_name_those_of_the_gateway_too(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (_, client):
        found = await client.call("commands")

        assert isinstance(found, dict)
        assert {"help", "stop", "approve"} <= set(found)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'{"do": "dance"}\n', "unknown request 'dance'"),
        (b'{"do": 1}\n', "'do' is missing"),
        (b"{}\n", "'do' is missing"),
        (b"[]\n", "not an object"),
        (b"\xff\xfe garbage\n", "not JSON"),
        (b"[" * 100_000 + b"\n", "not JSON"),
        (b'{"do": "turn"}\n', "is missing"),
        (b'{"do": "turn", "text": "", "session": "a"}\n', "'text' is missing"),
        (b'{"do": "retry"}\n', "'id' is missing"),
        (b'{"do": "send", "channel": "nowhere"}\n', "'chat_id' is missing"),
        (
            b'{"do": "send", "channel": "nowhere", "chat_id": "1", "text": "x"}\n',
            "channel 'nowhere' does not exist",
        ),
    ],
)
async def test_what_is_wrong_is_told_and_ends_nothing(
    tmp_path: Path, data: bytes, error: str
) -> None:
    async with gateway(tmp_path) as (_, client):
        answer = await tell(tmp_path, data)

        assert answer["ok"] is False
        assert error in answer["error"]
        assert await client.call("status")


async def test_an_oversized_line_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MAX_LINE_BYTES", 1_000)
    monkeypatch.setattr(wire, "MAX_LINE_BYTES", 1_000)
    async with gateway(tmp_path) as (_, client):
        answer = await tell(tmp_path, b'{"do": "' + b"x" * 5_000 + b'"}\n')

        assert "longer than 1000 bytes" in answer["error"]
        assert await client.call("status")


async def test_half_a_line_and_silence_are_ended_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "REQUEST_LIMIT_S", 0.2)
    async with gateway(tmp_path) as (_, client):
        answer = await tell(tmp_path, b'{"do": "sta')

        assert "no request was received within" in answer["error"]
        assert await client.call("status")


async def test_a_caller_that_says_nothing_and_goes_leaves_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (_, client):
        async with connected(tmp_path):
            pass
        assert await client.call("status")


async def test_more_callers_than_allowed_are_told_to_come_later(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (_, client):
        idle = [
            await asyncio.open_unix_connection(str(tmp_path / "gateway" / "control.sock"))
            for _ in range(control.MAX_CONNECTIONS)
        ]
        with pytest.raises(ControlError, match="too many callers"):  # noqa: PT012 - until it has taken all of them
            async with asyncio.timeout(10):
                while True:
                    await client.call("status")
        for _, writer in idle:
            writer.close()
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await client.call("status")
                    break
                except ControlError:
                    await asyncio.sleep(0.01)


async def test_a_turn_is_told_as_it_happens_and_its_outcome_is_the_result(
    tmp_path: Path,
) -> None:
    seen: list[RunEvent] = []

    async def see(event: RunEvent) -> None:
        seen.append(event)

    async with gateway(tmp_path) as (_, client):
        said = await client.turn(asked("say hello you"), see)
        called = await client.turn(asked('call note {"word": "w"}'), see)

        assert (said.reply, said.turn.session_key, said.turn.source) == (
            "hello you",
            "cli:t",
            "cli",
        )
        assert called.tools_used == ("note",)
        assert any(isinstance(event, TextStreamed) for event in seen)
        (started,) = [event for event in seen if isinstance(event, ToolCallStarted)]
        assert started.call.arguments == {"word": "w"}


async def test_text_that_is_no_text_goes_through(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (_, client):
        outcome = await client.turn(asked("say \udcff\u2028\x00 ü"), ignore_event)

        assert outcome.error is None
        assert outcome.reply is not None
        assert outcome.reply.endswith("ü")


async def test_a_failed_turn_has_its_sentence(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (_, client):
        outcome = await client.turn(asked("fail"), ignore_event)

        assert outcome.error is not None
        assert "the key is not accepted" in outcome.error


async def test_a_caller_that_goes_during_its_turn_stops_it(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (bot, client):
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(client.turn(asked("hang"), ignore_event))
            await until(lambda: "hang" in _sessions(tmp_path))
            turn.cancel()
        outcome = await client.turn(asked("say again"), ignore_event)

        assert outcome.reply == "again"
        assert [message.role async for message in bot.sessions.read("cli:t")][-1] == "assistant"


async def test_two_callers_are_served_side_by_side(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (_, client), asyncio.TaskGroup() as group:
        hanging = group.create_task(client.turn(asked("hang", "cli:a"), ignore_event))
        await until(lambda: "hang" in _sessions(tmp_path))
        outcome = await client.turn(asked("say beside", "cli:b"), ignore_event)
        assert outcome.reply == "beside"
        assert not hanging.done()
        hanging.cancel()


async def test_a_control_command_waits_for_no_turn_of_its_session(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform)
        async with running(tmp_path):
            client = ControlClient(tmp_path / "gateway")
            await platform.say("hang")
            await turn_begun(tmp_path)
            outcome = await client.turn(asked("/stop", "chatty:1"), ignore_event)

            assert outcome.reply == "Stopped."


@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_a_question_goes_to_whoever_asked_for_the_turn(
    tmp_path: Path, answer: Literal["yes", "no"]
) -> None:
    questions: list[JsonObject] = []

    async def decide(question: JsonObject) -> Literal["yes", "no"]:
        questions.append(question)
        return answer

    async with gateway(tmp_path, tools=ASK) as (_, client):
        outcome = await client.turn(asked('call note {"word": "w"}'), ignore_event, decide)

        assert (questions[0]["name"], questions[0]["arguments"]) == ("note", {"word": "w"})
        assert outcome.reply is not None
        assert ("noted w" in outcome.reply) is (answer == "yes")


async def test_a_question_whose_caller_goes_is_a_no(tmp_path: Path) -> None:
    asking = asyncio.Event()

    async def decide(_: JsonObject) -> Literal["yes"]:
        asking.set()
        await asyncio.Event().wait()
        return "yes"

    async with gateway(tmp_path, tools=ASK) as (_, client):
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(
                client.turn(asked('call note {"word": "w"}'), ignore_event, decide)
            )
            await asking.wait()
            turn.cancel()
        assert (await client.turn(asked("say on"), ignore_event)).reply == "on"
        assert not (tmp_path / "workspace" / "notes.txt").exists()


async def test_an_answer_that_comes_too_late_is_none_to_the_next_question(
    tmp_path: Path,
) -> None:
    """A yes to the first question must not let the second call run."""
    asked_for: list[str] = []

    async def decide(question: JsonObject) -> Literal["yes", "no"]:
        asked_for.append(str(question["arguments"]))
        if len(asked_for) > 1:
            return "no"
        await until(lambda: "not approved" in _sessions(tmp_path))
        return "yes"

    tools = {**ASK, "approval_timeout_s": 1}
    async with gateway(tmp_path, tools=tools) as (_, client):
        two = 'call note {"word": "first"};; note {"word": "second"}'
        outcome = await client.turn(asked(two), ignore_event, decide)

        assert len(asked_for) == 2
        assert outcome.reply is not None
        assert outcome.reply.count("not approved") == 2
        assert not (tmp_path / "workspace" / "notes.txt").exists()


async def test_rubbish_instead_of_an_answer_stops_the_turn_and_is_told(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (_, client):
        async with connected(tmp_path) as (reader, writer):
            request = json.dumps({"do": "turn", **asked("hang")})
            writer.write(f"{request}\n".encode())
            await until(lambda: "hang" in _sessions(tmp_path))
            writer.write(b"rubbish\n")
            async with asyncio.timeout(10):
                lines = (await reader.read()).decode().splitlines()
        assert "not JSON" in json.loads(lines[-1])["error"]
        assert (await client.turn(asked("say on"), ignore_event)).reply == "on"


async def test_send_writes_to_a_chat(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform)
        async with running(tmp_path):
            client = ControlClient(tmp_path / "gateway")
            await client.call("send", channel="chatty", chat_id="5", text="news")

            await platform.shows("news", chat="5")


async def test_letters_that_are_not_there_are_told_as_such(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (_, client):
        assert await client.call("dead_letters") == []
        assert await client.call("retry", id="x") is False
        assert await client.call("drop", id="x") is False


async def test_without_a_gateway_the_sentence_says_what_to_do(tmp_path: Path) -> None:
    client = ControlClient(tmp_path / "gateway")

    assert (client.is_there, client.pid) == (False, None)
    with pytest.raises(ControlError, match="no gateway runs here; start one with nanobot gateway"):
        await client.call("status")


async def test_a_gateway_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_LIMIT_S", 0.2)
    (tmp_path / "gateway").mkdir()
    silent = asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    path = str(tmp_path / "gateway" / "control.sock")
    async with await asyncio.start_unix_server(say_nothing, path):
        with pytest.raises(ControlError, match="has not answered within"):
            await ControlClient(tmp_path / "gateway").call("status")
        silent.set()


async def test_a_gateway_that_falls_silent_in_a_turn_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``nanobot agent`` waited without end for a gateway that was stopped by SIGSTOP."""
    monkeypatch.setattr(client_module, "SILENCE_LIMIT_S", 0.2)
    write_config(tmp_path)
    async with GatewayProcess(tmp_path) as process:
        process.send(signal.SIGSTOP)
        client = ControlClient(tmp_path / "gateway")
        with pytest.raises(ControlError, match=f"kill -9 {process.pid} and start it again"):
            await client.turn(asked("hi"), ignore_event)
        process.send(signal.SIGCONT)


async def test_a_long_request_shows_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ALIVE_INTERVAL_S", 0.01)
    async with gateway(tmp_path), connected(tmp_path) as (reader, writer):
        writer.write(json.dumps({"do": "turn", **asked("hang")}).encode() + b"\n")
        async with asyncio.timeout(10):
            signs = 0
            while signs < 3:
                signs += json.loads(await reader.readline()) == {"alive": True}


async def test_signs_of_life_are_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "ANSWER_LIMIT_S", 5.0)
    (tmp_path / "gateway").mkdir()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"alive": true}\n{"alive": true}\n{"ok": true, "result": 7}\n')
        await writer.drain()
        writer.close()

    path = str(tmp_path / "gateway" / "control.sock")
    async with await asyncio.start_unix_server(answer, path):
        assert await ControlClient(tmp_path / "gateway").call("status") == 7


async def test_a_deleted_session_is_forgotten_by_the_gateway_too(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (bot, client):
        await client.turn(asked("say first"), ignore_event)
        held = await bot.pipeline.sessions.open("cli:t")
        assert held.messages

        assert await client.call("delete_session", key="cli:t") is True
        assert held.messages == ()
        assert await client.call("delete_session", key="cli:t") is False
        await client.turn(asked("say second"), ignore_event)
        texts = [message.text async for message in bot.sessions.read("cli:t")]
        assert len(texts) == 2
        assert "first" not in "".join(texts)


async def test_a_session_at_work_is_not_deleted(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (bot, client), asyncio.TaskGroup() as group:
        await client.turn(asked("say first"), ignore_event)
        begun = asyncio.Event()

        async def hear(_: RunEvent) -> None:
            begun.set()

        turn = group.create_task(client.turn(asked("stream words"), hear))
        await asyncio.wait_for(begun.wait(), 10)
        with pytest.raises(ControlError, match="a turn is under way"):
            await client.call("delete_session", key="cli:t")
        assert (await bot.pipeline.sessions.open("cli:t")).messages
        turn.cancel()


def _sessions(home: Path) -> str:
    files = (home / "workspace" / "sessions").rglob("*")
    return "".join(file.read_text() for file in files if file.is_file())
