"""Conversations with the protocol's own client and a real process."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError, image_block, resource_link_block, text_block
from acp.schema import EmbeddedResourceContentBlock, TextResourceContents

from nanobot_core.testing import GatewayProcess

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
LIMIT_S = 30.0
Start = Callable[[Path], AbstractAsyncContextManager[Any]]
Configure = Callable[..., None]
ASK = {"approval": [{"tool": "note", "action": "ask"}]}
NOTE = 'call note {"word": "once"}'
PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
        "0000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
    )
).decode()


async def test_an_answer_and_the_thinking_are_streamed(home: Path, start: Start) -> None:
    async with start(home) as editor:
        session = await editor.open()

        assert await editor.prompt(session, "think all is well") == "end_turn"
        assert editor.said() == "all is well "
        assert editor.thought() == "Let me see."
        await editor.until(lambda: bool(editor.of("available_commands_update")))
        (listed,) = editor.of("available_commands_update")
        assert {"help", "model"} <= {each.name for each in listed.available_commands}


async def test_commands_are_answered_once(home: Path, alone: Start) -> None:
    async with alone(home) as editor:
        session = await editor.open()
        await editor.prompt(session, "/help")
        await editor.prompt(session, "/status")

        assert editor.said().count("`/model`") == 1
        assert editor.said().count(f"acp:{session}") == 1


async def test_the_folder_of_the_project_is_the_working_folder(home: Path, start: Start) -> None:
    async with start(home) as editor:
        await editor.prompt(await editor.open(), NOTE)

        assert (editor.folder / "notes.txt").read_text() == "once\n"
        (begun,) = editor.of("tool_call")
        (ended,) = editor.of("tool_call_update")
        assert (begun.raw_input, begun.kind, begun.status) == (
            {"word": "once"},
            "other",
            "in_progress",
        )
        assert (ended.status, ended.content[0].content.text) == ("completed", "noted once")
        assert editor.said() == "The tool has ended."


async def test_a_folder_that_cannot_be_used_is_refused(home: Path, alone: Start) -> None:
    async with alone(home) as editor:
        for cwd in ("project", "/nowhere/at/all", "", "/tmp\0"):
            with pytest.raises(RequestError, match="absolute path of an existing folder") as caught:
                await editor.conn.new_session(cwd=cwd, mcp_servers=[])
            assert caught.value.code == -32602


async def test_writing_tools_show_what_they_change(
    tmp_path: Path, configure: Configure, start: Start
) -> None:
    pytest.importorskip("nanobot_files")
    home = tmp_path / "home"
    configure(home, plugins=["files"])
    async with start(home) as editor:
        session = await editor.open()
        file = editor.folder / "a.txt"
        await editor.prompt(session, 'call write_file {"path": "a.txt", "content": "one\\n"}')
        text = '{"path": "a.txt", "old_text": "one", "new_text": "two"}'
        await editor.prompt(session, f"call edit_file {text}")
        text = '{"path": "a.txt", "old_text": "missing", "new_text": "two"}'
        await editor.prompt(session, f"call edit_file {text}")

        made, changed, failed = editor.of("tool_call_update")
        assert [each.kind for each in editor.of("tool_call")] == ["edit"] * 3
        assert editor.of("tool_call")[0].locations[0].path == str(file)
        shown = [(each.path, each.old_text, each.new_text) for each in (made.content[0],)]
        assert shown == [(str(file), None, "one\n")]
        difference = changed.content[0]
        assert (difference.old_text, difference.new_text) == ("one\n", "two\n")
        assert (failed.status, [each.type for each in failed.content]) == ("failed", ["content"])


async def test_the_person_at_the_editor_decides(
    tmp_path: Path, configure: Configure, start: Start
) -> None:
    home = tmp_path / "home"
    configure(home, tools=ASK, owner=["7"])
    async with start(home) as editor:
        for answer, status in (("reject_once", "failed"), ("allow_once", "completed")):
            editor.answer = answer
            assert await editor.prompt(await editor.open(), NOTE) == "end_turn"

            call, options = editor.asked[-1]
            assert (call.raw_input, call.status) == ({"word": "once"}, "pending")
            assert {"allow_once", "reject_once"} <= set(options)
            assert editor.of("tool_call_update")[-1].status == status
            assert (editor.folder / "notes.txt").exists() is (status == "completed")
        assert len(editor.asked) == 2


async def test_any_other_answer_means_no(
    tmp_path: Path, configure: Configure, alone: Start
) -> None:
    home = tmp_path / "home"
    configure(home, tools=ASK)
    async with alone(home) as editor:
        session = await editor.open()
        for answer in ("", "invented", "allow_always"):
            editor.answer = answer
            await editor.prompt(session, NOTE)

        assert len(editor.asked) == 3
        assert not (editor.folder / "notes.txt").exists()


async def test_always_is_kept_and_not_asked_again(
    tmp_path: Path, configure: Configure, start: Start
) -> None:
    home = tmp_path / "home"
    configure(home, tools=ASK)
    async with start(home) as editor:
        editor.answer = "allow_always"
        session = await editor.open()
        await editor.prompt(session, 'call note {"word": "carefully"}')
        assert editor.asked[0][1] == ["allow_once", "reject_once"]  # by a rule of the owner's
    configure(home)
    async with start(home) as editor:
        editor.answer = "allow_always"
        session = await editor.open()
        await editor.prompt(session, 'call note {"word": "carefully"}')
        await editor.prompt(session, 'call note {"word": "carefully"}')

        ((_, options),) = editor.asked
        assert options == ["allow_once", "allow_always", "reject_once"]


async def test_no_protected_file_is_shown(
    tmp_path: Path, configure: Configure, alone: Start
) -> None:
    pytest.importorskip("nanobot_files")
    home = tmp_path / "home"
    rules = [{"tool": "write_file", "action": "ask"}]
    configure(home, plugins=["files"], tools={"approval": rules}, owner=["owner-of-the-test"])
    async with alone(home) as editor:
        editor.answer = "allow_once"  # the file stays protected
        session = await editor.open()
        path = str(home / "config.yaml")
        for name in ("write_file", "read_file"):
            text = f'{{"path": "{path}", "content": "x"}}'
            await editor.prompt(session, f"call {name} {text}")

        ((call, _),) = editor.asked
        assert (call.content[0].old_text, call.content[0].new_text) == (None, "x")
        assert [each.status for each in editor.of("tool_call_update")] == ["failed"] * 2
        assert "owner-of-the-test" not in f"{editor.updates}{editor.asked}"
        assert "owner-of-the-test" in (home / "config.yaml").read_text()


async def test_cancelling_ends_the_prompt_and_the_session_goes_on(
    tmp_path: Path, configure: Configure, start: Start
) -> None:
    home = tmp_path / "home"
    configure(home, tools=ASK)
    async with start(home) as editor:
        editor.answer = None  # the question stays open
        session = await editor.open()
        for prompt, has_begun in (
            ("hang", lambda: "beginning" in editor.said()),
            (NOTE, lambda: bool(editor.asked)),
        ):
            prompting = asyncio.create_task(editor.prompt(session, prompt))
            await editor.until(has_begun)
            await editor.conn.cancel(session_id=session)

            assert await prompting == "cancelled"
            assert await editor.prompt(session, "say again") == "end_turn"
        assert not (editor.folder / "notes.txt").exists()


async def test_a_second_prompt_at_once_is_refused_and_the_first_goes_on(
    home: Path, alone: Start
) -> None:
    async with alone(home) as editor:
        session, other = await editor.open(), await editor.open()
        prompting = asyncio.create_task(editor.prompt(session, "hang"))
        await editor.until(lambda: "beginning" in editor.said())

        with pytest.raises(RequestError, match="is under way"):
            await editor.prompt(session, "say no")
        assert await editor.prompt(other, "say yes") == "end_turn"
        await editor.conn.cancel(session_id=session)
        assert await prompting == "cancelled"


async def test_a_failure_is_an_error_with_a_sentence(home: Path, start: Start) -> None:
    async with start(home) as editor:
        with pytest.raises(RequestError) as caught:
            await editor.prompt(await editor.open(), "fail")

        assert "playing" in str(caught.value)
        assert "Traceback" not in str(caught.value)
        assert caught.value.data is None


async def test_loading_replays_the_history_and_resuming_does_not(home: Path, alone: Start) -> None:
    async with alone(home) as editor:
        session = await editor.open()
        await editor.prompt(session, NOTE)
        for number in range(60):  # more than one page
            await editor.prompt(session, f"say {number}")
        folder = str(editor.folder)
        await editor.until(lambda: bool(editor.of("available_commands_update")))
        editor.updates.clear()
        await editor.conn.resume_session(session_id=session, cwd=folder, mcp_servers=[])
        assert {each.session_update for each in editor.updates} <= {"available_commands_update"}
        await editor.until(lambda: bool(editor.updates))
        editor.updates.clear()
        await editor.conn.load_session(session_id=session, cwd=folder, mcp_servers=[])

        asked = [each.content.text for each in editor.of("user_message_chunk")]
        assert asked == [NOTE, *(f"say {number}" for number in range(60))]
        assert len(editor.of("tool_call")) == len(editor.of("tool_call_update")) == 1
        answers = [each.content.text.strip() for each in editor.of("agent_message_chunk")]
        assert answers == ["The tool has ended.", *map(str, range(60))]


async def test_sessions_are_listed_closed_and_deleted(home: Path, start: Start) -> None:
    async with start(home) as editor:
        first, second = await editor.open(), await editor.open()
        await editor.prompt(first, "say 1")
        await editor.prompt(second, "say 2")
        listed = await editor.conn.list_sessions()
        assert [each.session_id for each in listed.sessions] == [second, first]
        assert {each.cwd for each in listed.sessions} == {str(editor.folder)}
        assert (await editor.conn.list_sessions(cwd="/")).sessions == []

        await editor.conn.close_session(session_id=first)
        with pytest.raises(RequestError, match="not open"):
            await editor.prompt(first, "say no")
        await editor.conn.load_session(session_id=first, cwd=str(editor.folder), mcp_servers=[])
        await editor.request("session/delete", sessionId=first)
        await editor.request("session/delete", sessionId=first)
        listed = await editor.conn.list_sessions()
        assert [each.session_id for each in listed.sessions] == [second]
        with pytest.raises(RequestError, match="no such session") as caught:
            await editor.conn.load_session(session_id=first, cwd=str(editor.folder), mcp_servers=[])
        assert caught.value.code == -32002


async def test_sessions_of_other_channels_are_out_of_reach(home: Path, alone: Start) -> None:
    async with alone(home) as editor:
        session = await editor.open()
        await editor.prompt(session, "say secret")
        for name in ("cli:direct", f"../{session}", "", f"acp:{session}", "direct"):
            with pytest.raises(RequestError, match="no such session"):
                await editor.conn.load_session(
                    session_id=name, cwd=str(editor.folder), mcp_servers=[]
                )
            await editor.request("session/delete", sessionId=name)
        assert len((await editor.conn.list_sessions()).sessions) == 1


async def test_the_model_is_an_option_that_is_kept(
    tmp_path: Path, configure: Configure, alone: Start
) -> None:
    home = tmp_path / "home"
    configure(home, models={"other": {"model": "playing/other"}})
    async with alone(home) as editor:
        made = await editor.conn.new_session(cwd=str(editor.folder), mcp_servers=[])
        (option,) = made.config_options or []
        assert (option.id, option.category, option.current_value) == ("model", "model", "default")
        session, params = made.session_id, {"configId": "model"}
        method = "session/set_config_option"
        done = await editor.request(method, sessionId=session, value="other", **params)
        assert done["configOptions"][0]["currentValue"] == "other"
        await editor.conn.close_session(session_id=session)
        loaded = await editor.conn.load_session(
            session_id=session, cwd=str(editor.folder), mcp_servers=[]
        )
        assert (loaded.config_options or [])[0].current_value == "other"
        for value in ("nobody/serves-this", "", "other\n/help"):
            with pytest.raises(RequestError) as caught:
                await editor.request(method, sessionId=session, value=value, **params)
            assert caught.value.code == -32602
        await editor.prompt(session, "/model default")
        await editor.until(lambda: bool(editor.of("config_option_update")))
        (update,) = editor.of("config_option_update")
        assert update.config_options[0].current_value == "default"


async def test_links_texts_and_images_reach_the_agent(home: Path, alone: Start) -> None:
    async with alone(home) as editor:
        session = await editor.open()
        resource = TextResourceContents(uri="file:///a%20b.py", text="print(1)\n```")
        blocks: list[Any] = [
            text_block("look at "),
            resource_link_block("x.py", "file:///src/x.py"),
            EmbeddedResourceContentBlock(type="resource", resource=resource),
            image_block(PIXEL, "image/png"),
            text_block("\nsay done"),
        ]
        await editor.conn.prompt(session_id=session, prompt=blocks)
        editor.updates.clear()
        await editor.conn.load_session(session_id=session, cwd=str(editor.folder), mcp_servers=[])

        (kept,) = (each.content.text for each in editor.of("user_message_chunk"))
        assert kept.startswith("look at [x.py](/src/x.py)[a b.py](/a b.py)\nsay done")
        assert "/a b.py:\n````\nprint(1)\n```\n````" in kept
        (image,) = (home / "media").rglob("*.png")
        assert f"Attached file: {image}" in kept
        assert image.read_bytes() == base64.b64decode(PIXEL)


async def test_the_end_of_the_gateway_fails_the_prompt_and_the_next_ones(
    home: Path, alone: Start
) -> None:
    async with GatewayProcess(home) as gateway, alone(home) as editor:
        session = await editor.open()
        prompting = asyncio.create_task(editor.prompt(session, "hang"))
        await editor.until(lambda: "beginning" in editor.said())
        gateway.send(signal.SIGKILL)

        with pytest.raises(RequestError, match="the gateway ended"):
            await prompting
        await gateway.ended()
        with pytest.raises(RequestError, match="no gateway runs here"):
            await editor.prompt(session, "say hello")
        async with GatewayProcess(home):
            assert await editor.prompt(session, "say hello") == "end_turn"


async def test_the_end_of_the_editor_ends_the_process(home: Path, alone: Start) -> None:
    async with alone(home) as editor:
        session = await editor.open()
        prompting = asyncio.create_task(editor.prompt(session, "hang"))
        await editor.until(lambda: "beginning" in editor.said())
        assert editor.process.stdin is not None
        editor.process.stdin.close()

        async with asyncio.timeout(LIMIT_S):
            assert await editor.process.wait() == 0
        prompting.cancel()


async def test_a_signal_ends_the_process(home: Path, alone: Start) -> None:
    async with alone(home) as editor:
        await editor.open()
        os.kill(editor.process.pid, signal.SIGTERM)

        async with asyncio.timeout(LIMIT_S):
            assert await editor.process.wait() == 0


async def test_nothing_but_the_protocol_is_on_standard_output(home: Path, alone: Start) -> None:
    # The client of the library logs lines that are not JSON; a broken line would break the answer.
    async with alone(home) as editor:
        await editor.prompt(await editor.open(), "call shout")

        (ended,) = editor.of("tool_call_update")
        assert ended.content[0].content.text == "cat ended with 0"


async def test_the_offline_provider_answers(
    tmp_path: Path, configure: Configure, alone: Start
) -> None:
    pytest.importorskip("nanobot_offline")
    home = tmp_path / "home"
    configure(
        home, plugins=["offline"], agents={"defaults": {"provider": "offline", "model": "offline"}}
    )
    async with alone(home) as editor:
        assert await editor.prompt(await editor.open(), 'note {"word": "kept"}') == "end_turn"
        assert (editor.folder / "notes.txt").read_text() == "kept\n"
