"""The behaviour of an installed plugin, tried in a process of its own.

``pytest --nanobot-plugin`` runs this module, because a faulty plugin may hang, block or leave
threads behind. Each line of its output is JSON: what it tries, or a finding.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nanobot_core.contracts.channel import Channel
from nanobot_core.contracts.memory import MemoryBackend
from nanobot_core.contracts.service import Service
from nanobot_core.contracts.tool import LazyTool, Tool, ToolContext, ToolOutput
from nanobot_core.errors import (
    ChannelError,
    ConfigError,
    DeliveryError,
    PluginRejected,
    ToolError,
)
from nanobot_core.hooks.compilation import HookStats, Registrant, compile_plugin
from nanobot_core.messages import JsonObject, OutboundMessage
from nanobot_core.plugins.examine import derive_manifest
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.loader import load_entry, load_object
from nanobot_core.plugins.manifest import Declaration, declared_tool
from nanobot_core.testing.channel import RecordingInbox
from nanobot_core.testing.context import FakePluginContext
from nanobot_core.testing.description import find_plugin
from nanobot_core.testing.memory import MemoryContract, ServiceContract
from nanobot_core.testing.plugin import PluginContract
from nanobot_core.testing.sample import SAMPLE_FILE, sample_calls
from nanobot_core.testing.suite import (
    ConformanceSuite,
    ContextSuite,
    audited,
    changed_file,
    ends_within,
)
from nanobot_core.testing.tool import ToolContract, call_of_chat, output_text, tree_digest

KINDS = ("hooks", "tools", "channels", "memory", "services")
MARK = "nanobot-behaviour: "
"""Begins each line that is an answer; the plugin's own output is on others."""
_TEST_LIMIT_S = 20.0
_CALL_LIMIT_S = 5.0
_EFFECT_LIMIT_S = 1.0
_POLL_S = 0.02
_SENDING = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.sendto",
    "socket.sendmsg",
    "subprocess.Popen",
    "os.posix_spawn",
    "sqlite3.connect",
)
_ANSWERS = sys.stdout
T = TypeVar("T")


class InstalledHooks(PluginContract):
    """The hooks of an installed plugin."""

    def __init__(self, plugin: InstalledPlugin) -> None:
        self.plugin_id: str = plugin.id
        self._plugin = plugin

    def make_plugin(self) -> object:
        return load_entry(self._plugin)


class InstalledTool(ToolContract):
    """A tool of an installed plugin, called with samples that its parameters accept."""

    def __init__(self, name: str, parameters: JsonObject, made: Contributions) -> None:
        self.name = name
        self._parameters = parameters
        self.made = made
        self.sample_arguments: JsonObject = self.arguments_of("sample")

    def arguments_of(self, session: str) -> JsonObject:
        return sample_calls(self._parameters, session)[-1]

    def make_tool(self, context: FakePluginContext) -> Tool:
        return self.made.tools(context)[self.name]

    def prepare(self, workspace: Path) -> None:
        (workspace / SAMPLE_FILE).write_text("sample\n", "utf-8")

    async def _call(
        self, tool: Tool, call: ToolContext, arguments: JsonObject | None = None
    ) -> ToolOutput:
        # A call with made-up arguments may fail.
        try:
            return await super()._call(tool, call, arguments)
        except (ToolError, TimeoutError) as error:
            return str(error)


class InstalledTools(ContextSuite):
    """All tools of an installed plugin together."""

    def __init__(self, made: Contributions) -> None:
        self._made = made

    async def test_no_tool_shows_a_chat_what_another_chat_gave(self, tmp_path: Path) -> None:
        async with self.make_context(tmp_path) as context:
            await self._made.start(context)
            tools = self._made.tools(context)
            data = tree_digest(context.data_dir)
            for chat in ("alpha", "beta"):
                call = call_of_chat(chat, tmp_path, [])
                (call.workspace / SAMPLE_FILE).write_text("sample\n", "utf-8")
                for tool in tools.values():
                    for arguments in sample_calls(tool.parameters, f"session-{chat}"):
                        output = await _output(tool, call, arguments)
                        # A tool for the owner may keep data in the plugin's folder.
                        is_kept = not tool.for_guests and tree_digest(context.data_dir) != data
                        is_mixed = chat == "beta" and "session-alpha" in output
                        assert is_kept or not is_mixed, (
                            f"tool '{tool.name}' shows one chat what another one gave to a tool of "
                            "this plugin; keep state by context.session_key, not on the tool or in "
                            "its module"
                        )
            await self._made.stop(context)


class InstalledMemory(MemoryContract):
    """A memory backend of an installed plugin."""

    def __init__(self, make: Make) -> None:
        self._make = make

    def make_memory(self, context: FakePluginContext) -> MemoryBackend:
        return self._make(context, MemoryBackend)  # type: ignore[type-abstract]


class InstalledService(ServiceContract):
    """A service of an installed plugin."""

    def __init__(self, make: Make) -> None:
        self._make = make

    def make_service(self, context: FakePluginContext) -> Service:
        return self._make(context, Service)  # type: ignore[type-abstract]


class InstalledChannel(ContextSuite):
    """A channel of an installed plugin. Its platform is unknown, so only effects can be seen."""

    def __init__(self, make: Make) -> None:
        self._make = make

    async def test_each_message_is_sent_or_refused(self, tmp_path: Path) -> None:
        async with self.make_context(tmp_path) as context:
            channel = self._make(context, Channel)  # type: ignore[type-abstract]
            run = asyncio.get_running_loop().create_task(_receive(channel))
            await asyncio.wait({run}, timeout=_POLL_S)
            long = "word " * channel.capabilities.max_message_chars
            for text in ("sample", "another", long[:100_000]):
                assert await _is_sent(channel, text, tmp_path), (
                    f"channel '{channel.name}' drops messages: send returned, and nothing left "
                    "the process; deliver the message, or raise DeliveryError"
                )
            await channel.stop()
            await channel.stop()
            assert await ends_within(run, _TEST_LIMIT_S), (
                f"channel '{channel.name}': start continues after stop; end it there"
            )


class Contributions:
    """The contributions of an installed plugin."""

    def __init__(self, plugin: InstalledPlugin) -> None:
        self._plugin = plugin
        self._entry = Registrant(plugin.id, plugin.version, load_entry(plugin))
        self._hooks = compile_plugin(self._entry, HookStats(now_s=time.monotonic))

    async def start(self, context: FakePluginContext) -> None:
        """Call ``start``; skips the test when the plugin needs settings for it."""
        await self._own("start", context)

    async def stop(self, context: FakePluginContext) -> None:
        """Call ``stop``."""
        await self._own("stop", context, "shutdown")

    async def _own(self, hook: str, *arguments: object) -> None:
        for implementation in self._hooks.get(hook, ()):
            with needing_settings():
                result = implementation.function(*arguments)
                if inspect.isawaitable(result):
                    await result

    def tools(self, context: FakePluginContext) -> dict[str, Tool]:
        """Return the tools by name."""
        given = self._hooks["contribute_tools"][0].function(context)
        return {each.name: self._loaded(each, context) for each in given}

    def _loaded(self, tool: Tool | LazyTool, context: FakePluginContext) -> Tool:
        if isinstance(tool, Tool):
            return tool
        found: Any = load_object(self._plugin.id, tool.factory)
        made: Tool = found if isinstance(found, Tool) else found(context)
        return made


class Make:
    """Calls the factory of a contribution."""

    def __init__(self, plugin: InstalledPlugin, spec: Declaration) -> None:
        self._plugin, self._factory = plugin.id, str(spec.detail["factory"])

    def __call__(self, context: FakePluginContext, wanted: type[T]) -> T:
        """Return what the factory makes of `context`; skips the test if it needs settings."""
        factory: Any = load_object(self._plugin, self._factory)
        with needing_settings():
            made = factory(context)
        assert isinstance(made, wanted), f"{self._factory} returns {made!r}"
        return made


@contextmanager
def needing_settings() -> Iterator[None]:
    """Skip what cannot be made with the default settings."""
    try:
        yield
    except (ConfigError, PluginRejected) as error:
        pytest.skip(f"it needs settings: {error}")


def suites(plugin: InstalledPlugin, kind: str) -> Iterator[ConformanceSuite]:
    """Yield what tests one kind of contribution."""
    if kind == "hooks":
        yield InstalledHooks(plugin)
        return
    given = (plugin.manifest or derive_manifest(plugin)).of_kind(kind)
    if kind == "tools":
        made = Contributions(plugin)
        for spec in given:
            yield InstalledTool(spec.name, declared_tool(spec).definition.parameters, made)
        yield InstalledTools(made)
        return
    made_of = {
        "memory": InstalledMemory,
        "services": InstalledService,
        "channels": InstalledChannel,
    }
    for spec in given:
        yield made_of[kind](Make(plugin, spec))


async def _output(tool: Tool, call: ToolContext, arguments: JsonObject) -> str:
    try:
        async with asyncio.timeout(_CALL_LIMIT_S):
            return output_text(await tool.execute(call, dict(arguments)))
    except Exception as error:  # noqa: BLE001 - failures are the subject of other tests
        return str(error)


async def _receive(channel: Channel) -> None:
    with contextlib.suppress(ChannelError):
        await channel.start(RecordingInbox())


async def _is_sent(channel: Channel, text: str, folder: Path) -> bool:
    """Whether `send` fails, or something leaves the process: to a file, a socket or a program."""
    effects: list[str] = []

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _SENDING or changed_file(event, arguments):
            effects.append(event)

    message = OutboundMessage(channel=channel.name, chat_id="sample", content=text)
    before = tree_digest(folder)
    with audited(listen), contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            async with asyncio.timeout(_CALL_LIMIT_S):
                await channel.send(message)
        except (DeliveryError, TimeoutError):
            return True
        deadline = time.monotonic() + _EFFECT_LIMIT_S
        while time.monotonic() < deadline:
            if effects or printed.getvalue() or tree_digest(folder) != before:
                return True
            await asyncio.sleep(_POLL_S)
    return False


async def _run(suite: ConformanceSuite, name: str, folder: Path) -> None:
    """Run one test, with the fixtures that it asks for."""
    test = getattr(suite, name)
    wanted = inspect.signature(test).parameters
    if not isinstance(suite, InstalledTool):
        await test(**{"tmp_path": folder} if wanted else {})
        return
    async with suite.make_context(folder) as context:
        suite.prepare(context.workspace)
        await suite.made.start(context)
        values = {"tmp_path": folder, "context": context, "tool": suite.make_tool(context)}
        await test(**{name: value for name, value in values.items() if name in wanted})
        await suite.made.stop(context)


def _finding(suite: ConformanceSuite, name: str) -> str:
    """Run one test; return what is wrong, empty when it passes."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        loop = asyncio.new_event_loop()
        work = loop.create_task(_run(suite, name, Path(folder)))
        loop.run_until_complete(asyncio.wait({work}, timeout=_TEST_LIMIT_S))
    sentence = name.removeprefix("test_").replace("_", " ")
    if not work.done():
        return f"does not end within {_TEST_LIMIT_S:g} s: {sentence}"
    try:
        work.result()
    except pytest.skip.Exception as skipped:
        _print(skipped=str(skipped))
    except AssertionError as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return str(error) or f"not so: {sentence} ({place.line})"
    except Exception as error:  # noqa: BLE001 - whatever the plugin raises
        return f"not so: {sentence}; it raised {type(error).__name__}: {error}"
    return ""


def _print(**facts: str) -> None:
    _ANSWERS.write(f"\n{MARK}{json.dumps(facts)}\n")
    _ANSWERS.flush()


def main(target: str, kind: str) -> None:
    """Test one kind of contribution of a plugin."""
    plugin = find_plugin(target)
    cases = [(suite, name) for suite in suites(plugin, kind) for name in dir(suite)]
    for suite, name in sorted(cases, key=lambda case: "cancel" not in case[1]):
        if not name.startswith("test_"):
            continue
        _print(trying=f"{getattr(suite, 'name', kind)}: {name}")
        if found := _finding(suite, name):
            _print(finding=found)
            if "cancel" in name:
                break  # the other tests would wait for what cannot be cancelled
    _print(done="")
    os._exit(0)  # without waiting for threads that a plugin left


if __name__ == "__main__":
    main(*sys.argv[1:])
