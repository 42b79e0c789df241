"""What only Telegram has, as people see it who write to a real gateway.

The day that all channels have in common is in the tests of nanobot-telegram. The gateway is a
process of its own; Telegram and the model are local servers. Each test compares a whole
conversation with the text below it. ``pytest -s`` prints them all.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, TypeAlias

import pytest

from tests.gateways import GatewayProcess, until as _until

NEEDED = ["files", "message", "openai", "shell", "telegram", "transcription", "usage"]
for _plugin in NEEDED:
    if find_spec(f"nanobot_{_plugin}") is None:
        pytest.skip(f"nanobot-{_plugin} is not installed", allow_module_level=True)

from nanobot_core import __version__  # noqa: E402 - see above
from nanobot_core.testing import OpenAIServer, Reply, ScriptedModel  # noqa: E402 - see above
from nanobot_core.testing.playing import tool_call  # noqa: E402 - see above
from tests.local_telegram import (  # noqa: E402 - see above
    LocalApi,
    bot_api,
    person,
    serving,
    until,
    write_config,
)

pytestmark = pytest.mark.anyio
BERT, _ = person(1002, "Bert")
GINA, _ = person(1003, "Gina")
Message: TypeAlias = Any
"""What the local Telegram shows; its module is loaded by path."""
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


DICTATED = " ".join(f"word {number}," for number in range(300)) + " end"
CAPTIONS: list[dict[str, str]] = [{"caption": "three"}, {}, {}]
ORDINARY = """\
Anna: [voice]
Nano: You said: [voice message] buy milk (files: .ogg)
Anna: [photo] three
Anna: [photo]
Anna: [photo]
Nano: You said: three (pictures: 3) (files: .jpg, .jpg, .jpg)
Anna: /help
Nano: Commands:

• /approve: allow a tool call that waits for approval: /approve ID
• /deny: refuse a tool call that waits for approval: /deny ID
• /help: show all commands
• /model: show or set the model of this conversation
• /new: start a new conversation
• /pairing: admit unknown senders: /pairing, /pairing approve CODE, /pairing revoke CHANNEL ID
• /plugins: list plugins: /plugins, /plugins enable|disable|reload ID
• /start: greet, and show all commands
• /status: show the model, the session and problems
• /stop: stop the current turn of this chat
• /usage: show tokens and cost of today and of this session
   <code> /approve
   <code> /deny
   <code> /help
   <code> /model
   <code> /new
   <code> /pairing
   <code> /plugins
   <code> /start
   <code> /status
   <code> /stop
   <code> /usage
Anna: /new
Nano: Started a new conversation.
Anna: hello again
Nano: You said: hello again
"""
IN_A_GROUP = """\
Anna: shall we have lunch?
Bert: @nano_bot what is for lunch?
Anna: @nano_bot lunch?
Nano: You said: lunch?
Anna in topic 5: @nano_bot of cars
Nano in topic 5: You said: of cars
Anna in topic 5: /status@nano_bot
Nano in topic 5: nanobot VERSION

• Model: m
• Session: telegram:-100200300:5, 2 messages in context
• Tools: 11
Anna: @nano_bot make a file
Nano: Run exec?

exec

{
  "command": "echo made > made.txt"
}

The owner answers with /approve ID or /deny ID.
   <bold> Run exec?
   <code> exec
   <pre> {
  "command": "echo made > made.txt"
}
   (Allow) (Deny)
Bert presses (Allow)
Gina presses (Allow)
Nano: /approve is for the owner only.
Anna presses (Allow)
Nano: Approved.
Nano: It gave: Exit code: 0
Anna: @nano_bot make another
Nano: Run exec?

exec

{
  "command": "echo made > another.txt"
}

The owner answers with /approve ID or /deny ID.
   <bold> Run exec?
   <code> exec
   <pre> {
  "command": "echo made > another.txt"
}
   (Allow) (Deny)
Anna presses (Deny)
Nano: Denied.
Nano: It gave: Error: exec was not approved by the owner

[Analyse the error above and try a different approach.]
Anna: @nano_bot sleep
Anna: /stop@nano_bot
Nano: Stopped.
Anna: @nano_bot awake?
Nano: You said: awake?
"""


@dataclass
class Day:
    """A gateway and its surroundings.

    Attributes:
        api: the local Telegram.
        model: the model service.
        script: what it answers.
        home: nanobot's folder.
        gateway: the process that runs.
    """

    api: LocalApi
    model: OpenAIServer
    script: ScriptedModel
    home: Path
    gateway: GatewayProcess

    def say(self, text: str = "", **fields: Any) -> None:
        self.api.say(text, **fields)

    async def shows(self, text: str, chat: int = 1001) -> Message:
        """Wait until the bot has written, in any message of a chat, `text`; return that message."""

        def found() -> Message | None:
            return next((each for each in self.api.shown(chat) if text in each.text), None)

        try:
            await until(self.api, lambda: found() is not None)
        except TimeoutError:
            raise AssertionError(f"no {text!r} in:\n{self.told(chat)}") from None
        shown = found()
        assert shown is not None
        return shown

    async def ask(self, text: str, answer: str, **fields: Any) -> Message:
        """Write, and wait for the answer."""
        self.say(text, **fields)
        return await self.shows(answer, fields.get("chat", bot_api.PRIVATE)["id"])

    def told(self, chat: int = 1001) -> str:
        """Return a conversation without what is another each time, and print it."""
        text: str = self.api.conversation(chat)
        text = re.sub(r"(?<=/approve |.../deny )[0-9a-f]{6,}", "ID", text)
        print(f"\n--- chat {chat}\n{text}")  # noqa: T201 - what the test is run for by people
        return f"{text}\n"


@asynccontextmanager
async def day(
    home: Path, answers: dict[str, Reply] | None = None, **sections: Any
) -> AsyncIterator[Day]:
    """Run a gateway with the plugins of a household bot."""
    script = ScriptedModel(answers)
    plugins = ["files", "shell", "message", "usage", *sections.pop("plugins", ())]
    sections["tools"] = {"exec": {"sandbox": "none"}, **sections.get("tools", {})}
    async with serving(script) as (api, model):
        write_config(home, api, model.url, plugins=plugins, **sections)
        async with GatewayProcess(home) as gateway:
            yield Day(api, model, script, home, gateway)
        assert "ERROR" not in gateway.errors, gateway.errors


async def test_voice_albums_the_menu_and_a_growing_answer(tmp_path: Path) -> None:
    answers = {"dictate": Reply(text=DICTATED, chunk_chars=1, write_bytes=64)}
    with Dictation() as dictation:
        transcription = {"provider": "custom", "api_base": dictation.url}
        async with day(
            tmp_path / "home", answers, plugins=["transcription"], transcription=transcription
        ) as today:
            voice = {"file_id": today.api.upload(b"OggS", "voice"), "mime_type": "audio/ogg"}
            await today.ask("", "buy milk", voice=voice)
            for number in range(3):
                part = today.api.upload(PNG, f"photo{number}")
                today.say(photo=[{"file_id": part}], media_group_id="7", **CAPTIONS[number])
            await today.shows("You said: three")
            await today.ask("/help", "Commands")
            await today.ask("/new", "Started a new")
            await today.ask("hello again", "You said: hello again")
            words = today.model.requests[-1].body["messages"]
            assert len([each for each in words if each["role"] == "user"]) == 1
            assert today.told() == ORDINARY
            before = len(today.api.shown())
            dictated = await today.ask("dictate", "299, end")
            assert dictated.text == DICTATED
            assert all(DICTATED.startswith(each) for each in dictated.edits)
            assert dictated.edits
            assert len(today.api.shown()) == before + 1
            assert today.api.acknowledged == sorted(set(today.api.acknowledged))


async def test_a_group_with_topics_guests_and_an_owner_who_decides(tmp_path: Path) -> None:
    answers = {
        "make a file": tool_call("exec", '{"command": "echo made > made.txt"}'),
        "make another": tool_call("exec", '{"command": "echo made > another.txt"}'),
        "sleep": tool_call("exec", '{"command": "sleep 61.75"}'),
    }
    ask = {"approval": [{"tool": "exec", "arguments": {"command": "echo*"}, "action": "ask"}]}
    group = bot_api.GROUP["id"]
    # A draft of what the turn says next would appear above "Denied." where that takes longer.
    telegram = {"allow_from": ["1001", "1003"], "streaming": False}
    async with day(tmp_path / "home", answers, telegram=telegram, tools=ask) as today:
        here: dict[str, Any] = {"chat": bot_api.GROUP}
        workspace = tmp_path / "home" / "workspace"
        today.say("shall we have lunch?", **here)
        today.say("@nano_bot what is for lunch?", sender=BERT, **here)
        await today.ask("@nano_bot lunch?", "You said: lunch?", **here)
        topic = here | {"message_thread_id": 5, "is_topic_message": True}
        await today.ask("@nano_bot of cars", "You said: of cars", **topic)
        await today.ask("/status@nano_bot", "Session: telegram:-100200300:5", **topic)

        question = await today.ask("@nano_bot make a file", "echo made > made.txt", **here)
        allow = question.buttons[0][0][1]
        today.api.press(question, allow, **{"chat": bot_api.GROUP, "from": BERT})
        today.api.press(question, allow, **{"chat": bot_api.GROUP, "from": GINA})
        await today.shows("owner only", group)
        assert not (workspace / "made.txt").exists()
        today.api.press(question, allow, **here)
        await today.shows("It gave:", group)
        assert (workspace / "made.txt").exists()
        question = await today.ask("@nano_bot make another", "another.txt", **here)
        today.api.press(question, question.buttons[0][1][1], **here)
        await today.shows("not approved", group)
        assert not (workspace / "another.txt").exists()

        today.say("@nano_bot sleep", **here)
        await _until(lambda: _runs("sleep 61.75"))
        await today.ask("/stop@nano_bot", "Stopped", **here)
        await _until(lambda: not _runs("sleep 61.75"))
        await today.ask("@nano_bot awake?", "You said: awake?", **here)
        assert today.told(group) == IN_A_GROUP.replace("VERSION", __version__)


class Dictation:
    """A transcription service on the loopback that always hears the same."""

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Dictated)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"


class _Dictated(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        heard = self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps({"text": "buy milk" if b"OggS" in heard else ""}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        """Nothing is written."""


def _runs(command: str) -> bool:
    """Whether a process of this command line is there."""
    wanted = "\0".join([*command.split(), ""]).encode()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it may have ended since it was listed
            if file.read_bytes() == wanted:
                return True
    return False
