"""PlayedDay: a gateway between a stand-in of a chat platform and a scripted model."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from nanobot_core.app.client import ControlClient
from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.testing.gateway import LIMIT_S, GatewayProcess, until
from nanobot_core.testing.model_server import RecordedRequest, Reply, ScriptedCall
from nanobot_core.testing.openai_server import OpenAIServer
from nanobot_core.testing.stand_in import ChatFile, Person, Shown, StandIn, answers, transcript

_PLUGINS = ("files", "message", "openai", "shell")
_GRACE_S = 0.5
_REPORTED_CHARS = 5_000
_MESSAGES_A_MINUTE = 100_000
_STORY = re.compile(r"Line (\d+) of a long story\.\n(?:Line .*\n)*Line (\d+) of.*")
_IDS = re.compile(r"(?<=/approve |.../deny )[0-9a-f]{6,}|(?<=approve )[A-Z2-9]{8}\b")


class ScriptedModel:
    """Answers the last line that a person wrote, with ``You said: …`` unless it is scripted.

    The default names the number of pictures and the extensions of the files of the message; after
    a tool it is ``It gave: …``.

    Attributes:
        replies: last line to reply.
    """

    def __init__(self, replies: Mapping[str, Reply] | None = None) -> None:
        self.replies: dict[str, Reply] = dict(replies or {})

    def __call__(self, request: RecordedRequest) -> Reply:
        """Return the reply to a request."""
        last = request.body["messages"][-1]
        if last["role"] == "tool":
            return Reply(text=f"It gave: {last['content']}")
        words, attached = what_was_written(last["content"])
        return self.replies.get(words) or Reply(text=f"You said: {words}{attached}")


def what_was_written(content: str | list[JsonObject]) -> tuple[str, str]:
    """Return the last line that a person wrote, and in words what they attached to it.

    Args:
        content: of a message of a user in a request to a model.
    """
    pictures = 0
    if isinstance(content, list):
        pictures = sum(part["type"] == "image_url" for part in content)
        content = "\n".join(str(part["text"]) for part in content if part["type"] == "text")
    written = content.rpartition("[End of runtime context]")[2]
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    files = [Path(line).suffix for line in lines if line.startswith("Attached file: ")]
    words = next((line for line in reversed(lines) if "Attached file: " not in line), "")
    attached = f" (pictures: {pictures})" if pictures else ""
    return words, attached + (f" (files: {', '.join(files)})" if files else "")


def tool_call(tool: str, arguments: str) -> Reply:
    """Return the reply of a model that wants a tool."""
    return Reply(calls=(ScriptedCall(name=tool, arguments=arguments),))


class PlayedDay:
    """A running gateway with the people and services around it.

    Attributes:
        stand_in: the platform.
        model: the model service.
        script: what it replies.
        home: nanobot's folder.
        gateway: the process that runs.
    """

    def __init__(
        self, stand_in: StandIn, model: OpenAIServer, script: ScriptedModel, home: Path
    ) -> None:
        self.stand_in: StandIn = stand_in
        self.model: OpenAIServer = model
        self.script: ScriptedModel = script
        self.home: Path = home
        self.gateway: GatewayProcess = GatewayProcess(home, skips=True)
        self._expected: list[tuple[str, str]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[GatewayProcess]:
        """Run a gateway, after the last one has ended."""
        async with GatewayProcess(self.home, skips=True) as self.gateway:
            yield self.gateway
        assert "Traceback" not in self.gateway.errors, self.gateway.errors

    # --- what people do and see

    async def say(self, text: str = "", *, chat: str = "", **details: Any) -> str:
        """Let a person write; see `StandIn.say`."""
        return await self.stand_in.say(text, chat=chat, **details)

    async def ask(
        self,
        text: str,
        answer: str,
        *,
        sender: Person | None = None,
        chat: str = "",
        mention: bool = False,
        files: Sequence[ChatFile] = (),
        quote: str | None = None,
    ) -> Shown:
        """Let a person write, and wait for an answer that contains `answer`."""
        await self.stand_in.say(
            text, sender=sender, chat=chat, mention=mention, files=files, quote=quote
        )
        return await self.shows(answer, chat or self.chat_of(sender))

    async def shows(self, text: str, chat: str = "") -> Shown:
        """Wait for a message of the agent that contains `text`; at the end, there must be one."""
        place = chat or self.chat_of()
        self._expected.append((place, text))
        try:
            await until(lambda: bool(self.found(text, place)))
        except TimeoutError:
            reported = (await self.gateway.reported())[-_REPORTED_CHARS:]
            raise AssertionError(
                f"no {text!r} in chat {place}:\n{self.conversation(place)}\n\n"
                f"The gateway reports:\n{reported}"
            ) from None
        return self.found(text, place)[0]

    def found(self, text: str, chat: str) -> list[Shown]:
        """Return the messages of the agent that contain `text`."""
        return [message for message in answers(self.stand_in, chat) if text in message.text]

    def chat_of(self, person: Person | None = None) -> str:
        """Return the private chat of a person, by default of Anna."""
        return self.stand_in.private(person or self.stand_in.anna)

    def conversation(self, chat: str) -> str:
        """Return a chat as people see it, with ``ID`` for what differs each time."""
        text = _IDS.sub("ID", transcript(self.stand_in.shown(chat)))
        return _STORY.sub(r"Lines \1 to \2", text)

    def check_once(self) -> None:
        """Check that each expected message is shown once."""
        for chat, text in dict.fromkeys(self._expected):
            count = len(self.found(text, chat))
            assert count == 1, f"{count} times {text!r} in:\n{self.conversation(chat)}"

    # --- the gateway

    async def control(self, request: str, **arguments: Any) -> JsonValue:
        """Send a request over the gateway's control socket."""
        return await ControlClient(self.home / "gateway").call(request, **arguments)

    async def delivered(self) -> None:
        """Wait until the gateway has no undelivered answer.

        People see an answer before the platform has confirmed it; what is then repeated after a
        fault can be shown twice.
        """
        async with asyncio.timeout(LIMIT_S):
            while True:
                status = await self.control("status")
                depth = status["depth"] if isinstance(status, dict) else None
                if isinstance(depth, dict) and not depth["outbound"]:
                    return
                await asyncio.sleep(0.02)

    async def asked(self, text: str) -> None:
        """Let Anna write, and wait until the model is asked."""
        before = len(self.model.requests)
        await self.say(text)
        await until(lambda: len(self.model.requests) > before)

    async def end(self, number: signal.Signals) -> int:
        """End the gateway with a signal, and return its exit code."""
        self.gateway.send(number)
        return await self.gateway.ended()


@asynccontextmanager
async def played_day(
    stand_in: StandIn,
    home: Path,
    script: ScriptedModel,
    *,
    bert_may_write: bool = False,
    **sections: Any,
) -> AsyncIterator[PlayedDay]:
    """Start the services around a gateway, and write its configuration.

    Args:
        stand_in: the platform; not started yet.
        home: nanobot's folder.
        script: replies of the model.
        bert_may_write: he is in ``allow_from``, as Anna is.
        sections: further sections of the configuration.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(stand_in)
        model = await stack.enter_async_context(OpenAIServer(default=script))
        write_config(home, [stand_in], model.url, bert_may_write=bert_may_write, **sections)
        yield PlayedDay(stand_in, model, script, home)


def write_config(
    home: Path,
    stand_ins: Sequence[StandIn],
    model_url: str,
    *,
    bert_may_write: bool = False,
    settings: Mapping[str, Any] | None = None,
    **sections: Any,
) -> None:
    """Write the configuration of a gateway on running stand-ins; Anna owns the agent on each.

    Args:
        home: nanobot's folder.
        stand_ins: the platforms.
        model_url: base URL of the model service.
        bert_may_write: he is in ``allow_from``, as Anna is.
        settings: further settings of each channel.
        sections: further sections of the configuration.
    """
    extra: dict[str, Any] = {}
    for stand_in in stand_ins:
        extra |= stand_in.config()
    model = {"provider": "custom", "model": "m", "workspace": str(home / "workspace")}
    plugins = [
        plugin
        for stand_in in stand_ins
        for plugin in (stand_in.plugin or stand_in.name, *stand_in.plugins)
    ]
    content: dict[str, Any] = {
        "agents": {"defaults": model},
        "plugins": {"policy": "listed", "enabled": [*_PLUGINS, *plugins]},
        "providers": {"custom": {"api_base": model_url}},
        "channels": {
            stand_in.name: {
                "allow_from": [person.id for person in _writers(stand_in, bert_may_write)],
                "rate_limit": _MESSAGES_A_MINUTE,
                **stand_in.section(),
                **(settings or {}),
            }
            for stand_in in stand_ins
        },
        "gateway": {"port": 0, "grace_s": _GRACE_S},
        "owner": [f"{stand_in.name}:{stand_in.anna.id}" for stand_in in stand_ins],
        **extra,
        **sections,
    }
    (home / "workspace").mkdir(parents=True, exist_ok=True)
    file = home / "config.yaml"
    file.write_text(yaml.safe_dump(content))
    file.chmod(0o600)


def _writers(stand_in: StandIn, bert_may_write: bool) -> list[Person]:
    return [stand_in.anna, *([stand_in.bert] if bert_may_write else [])]
