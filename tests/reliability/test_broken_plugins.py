"""A broken plugin harms itself alone: the others go on, turns are answered, and it is named."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from nanobot_core.app.application import Nanobot
from nanobot_core.config.loading import load_config
from nanobot_core.messages import JsonObject
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.health import PluginReport
from tests.distributions import manifest_of, write_plugin
from tests.strangers.broken import (
    AT_START,
    GATE,
    HEAD,
    IN_A_HOOK,
    IN_A_TOOL,
    TOOL_MANIFEST,
    tool_code,
)

pytestmark = pytest.mark.anyio
SCRIPTED = Path(__file__).parents[1] / "strangers" / "scripted.py"
GOOD = HEAD + "@on.finalize_content\ndef f(event): return event.content + ' (and the other one)'\n"
Start = Callable[..., AbstractAsyncContextManager[Nanobot]]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on ``sys.path`` in which one plugin is sound."""
    folder = tmp_path / "site"
    monkeypatch.setattr(sys, "path", [*sys.path[:1], str(folder), *sys.path[1:]])
    write_plugin(
        folder, "good", code=GOOD, manifest=manifest_of("good", hooks={"finalize_content": 1})
    )
    (folder / "acme_gate.py").write_text(GATE)
    before = set(sys.modules)
    yield folder
    if (gate := sys.modules.get("acme_gate")) is not None:
        gate.release.set()
    for name in set(sys.modules) - before:
        if name.startswith(("acme_", "nanobot_local_")):
            del sys.modules[name]


@pytest.fixture
def start(tmp_path: Path, site: Path) -> Start:
    """Start an application that knows only the plugins of the site folder and the scripted one."""

    @asynccontextmanager
    async def started(**settings: Any) -> AsyncIterator[Nanobot]:
        home = tmp_path / "home"
        overrides: JsonObject = {
            "agents.defaults.model": "scripted/one",
            "plugins.local": [str(SCRIPTED)],
            "plugins.limits": {"broken.start": 0.1, "broken.finalize_content": 0.1},
            "tools.timeout_s": 0.2,
        }
        given: JsonObject = {key.replace("__", "."): value for key, value in settings.items()}
        loaded = load_config(None, environ={}, home=home, overrides=overrides | given)
        every = Catalogue.load(home / "cache", loaded.settings.plugins).selections.values()
        ours = [
            item.plugin
            for item in every
            if item.plugin.file or item.plugin.distribution.startswith("acme-")
        ]
        catalogue = Catalogue(ours, loaded.settings.plugins)
        async with asyncio.timeout(40), Nanobot(loaded, catalogue=catalogue) as app:
            yield app

    return started


def report(app: Nanobot, plugin_id: str = "broken") -> PluginReport:
    return next(item for item in app.plugins.reports() if item.id == plugin_id)


async def assert_others_go_on(app: Nanobot) -> None:
    outcome = await app.run("hello")
    assert outcome.reply == "You said: hello (and the other one)"
    assert report(app, "good").state == "active"


@pytest.mark.promise(13)
@pytest.mark.parametrize("fault", AT_START)
async def test_one_that_cannot_start_is_left_out_and_named(
    site: Path, start: Start, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "import never ends":
        monkeypatch.setattr("nanobot_core.plugins.active.IMPORT_LIMIT_S", 0.5)
    broken = AT_START[fault]
    write_plugin(
        site, "broken", code=broken.code, manifest=broken.described, requires=broken.requires
    )

    async with start() as app:
        await assert_others_go_on(app)

        found = report(app)
        assert broken.reason in found.reason
        assert found.remedy
        assert found.state == broken.state


@pytest.mark.parametrize("fault", IN_A_HOOK)
async def test_one_that_fails_in_a_hook_is_passed_over_and_then_left_out(
    site: Path, start: Start, fault: str
) -> None:
    broken = IN_A_HOOK[fault]
    write_plugin(site, "broken", code=broken.code, manifest=broken.described)

    async with start() as app:
        for _ in range(4):
            await assert_others_go_on(app)

        (hook,) = report(app).hooks
        assert broken.reason in hook.last_error
        assert (hook.calls, hook.circuit, hook.skipped) == (3, "open", 1)


@pytest.mark.promise(11)
async def test_one_that_blocks_the_loop_is_named_while_it_does(site: Path, start: Start) -> None:
    code = HEAD + "told = threading.Event()\n@on.before_turn\ndef f(event): told.wait(5)\n"
    package = write_plugin(
        site, "broken", code=code, manifest=manifest_of("broken", hooks={"before_turn": 1})
    )

    async with start() as app:
        from importlib import import_module

        told = import_module("acme_broken.plugin").told
        sink = logger.add(lambda text: told.set() if "blocks the event loop" in text else None)
        watching = asyncio.get_running_loop().create_task(app.plugins.watch_loop())
        await asyncio.sleep(0)
        await assert_others_go_on(app)
        watching.cancel()
        logger.remove(sink)

        assert f"{package / 'plugin.py'}:5" in report(app).reason
        assert report(app).remedy


@pytest.mark.parametrize("fault", IN_A_TOOL)
async def test_a_tool_that_fails_is_told_to_the_model(site: Path, start: Start, fault: str) -> None:
    body, reason = IN_A_TOOL[fault]
    write_plugin(site, "broken", code=tool_code(body), manifest=TOOL_MANIFEST)

    async with start() as app:
        outcome = await app.run("call odd")
        assert reason in (outcome.reply or "")
        await assert_others_go_on(app)


async def test_a_tool_that_swallows_cancellation_ends_with_its_time(
    site: Path, start: Start
) -> None:
    body = (
        "try:\n            await asyncio.Event().wait()\n"
        "        except asyncio.CancelledError:\n            return 'still here'"
    )
    write_plugin(site, "broken", code=tool_code(body), manifest=TOOL_MANIFEST)

    async with start() as app:
        outcome = await app.run("call odd")
        assert (outcome.reply or "").startswith("The tool said: ")
        await assert_others_go_on(app)


async def test_a_tool_that_returns_far_too_much_reaches_the_model_cut(
    site: Path, start: Start
) -> None:
    size = 50_000_000
    write_plugin(site, "broken", code=tool_code(f"return 'x' * {size}"), manifest=TOOL_MANIFEST)

    async with start() as app:
        tracemalloc.start()
        outcome = await app.run("call odd")
        peak = tracemalloc.get_traced_memory()[1]
        async with asyncio.timeout(10):  # what observes the turn ends after it
            while tracemalloc.get_traced_memory()[0] >= size // 5:  # noqa: ASYNC110 - as it says
                await asyncio.sleep(0.01)
        tracemalloc.stop()

        assert len(outcome.reply or "") < 20_000
        assert peak < 6 * size
        await assert_others_go_on(app)


async def test_a_tool_whose_code_cannot_be_loaded_is_told_to_the_model(
    site: Path, start: Start
) -> None:
    code = HEAD + "@on.contribute_tools\ndef f(ctx): return [LazyTool('odd', 'no_such_thing:X')]\n"
    write_plugin(site, "broken", code=code, manifest=TOOL_MANIFEST)

    async with start() as app:
        outcome = await app.run("call odd")
        assert "plugin 'broken': module 'no_such_thing' does not exist" in (outcome.reply or "")
        await assert_others_go_on(app)


async def test_one_that_is_named_and_not_installed_is_named_with_the_line_that_installs_it(
    start: Start,
) -> None:
    async with start(plugins__enabled=["teapot"]) as app:
        await assert_others_go_on(app)

        assert report(app, "teapot").remedy == "install the package that has it"


async def test_one_that_fails_to_stop_does_not_hold_up_the_end(site: Path, start: Start) -> None:
    code = HEAD + (
        "@on.before_turn\ndef f(event): ...\n@on.stop\ndef g(ctx, reason): raise SystemExit(1)\n"
    )
    manifest = manifest_of("broken", hooks={"before_turn": 1, "stop": 1})
    write_plugin(site, "broken", code=code, manifest=manifest)

    async with start() as app:
        await assert_others_go_on(app)

    assert app.plugins.table.labels() == ()


@pytest.mark.parametrize("described", [True, False])
async def test_one_that_is_disabled_is_never_imported(
    site: Path, start: Start, tmp_path: Path, described: bool
) -> None:
    trace = f"open({str(tmp_path / 'imported')!r}, 'w').close()\n"
    manifest = manifest_of("broken", hooks={"before_turn": 1}) if described else None
    write_plugin(site, "broken", code=trace, manifest=manifest)

    async with start(plugins__disabled=["broken"]) as app:
        await assert_others_go_on(app)
        await app.plugins.load_tools()

    assert not (tmp_path / "imported").exists()


def command(site: Path, home: Path, cwd: Path, *arguments: str) -> str:
    """Run nanobot in `cwd` with `site` on its path; return all that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "nanobot_core", *arguments],
        env={
            "HOME": str(home),
            "NANOBOT_HOME": str(home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(site), *sys.path[2:]]),
        },
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.promise(13)
def test_the_command_line_names_the_guilty_ones(site: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("plugins: {enabled: [teapot]}\n")
    write_plugin(site, "broken", code="import no_such_thing")
    write_plugin(site, "unread", code="1 / 0", manifest="{")
    write_plugin(site, "elsewhere", requires=["no-such-thing"])

    listed = command(site, home, tmp_path, "plugins", "list")
    examined = command(site, home, tmp_path, "doctor")

    for plugin_id in ("good", "broken", "unread", "elsewhere", "teapot"):
        assert plugin_id in listed
    assert "not-installed" in listed
    for line in (
        "broken: plugin: failed: module 'no_such_thing' is not installed",
        "unread: plugin: incompatible: its manifest cannot be used",
        "elsewhere: plugin: incompatible: it needs no-such-thing, which is not installed",
        "teapot: plugin: not-installed",
        "install the package that has it",
    ):
        assert line in examined


def test_one_that_ignores_its_cancellation_does_not_hold_up_the_end_of_the_program(
    site: Path, tmp_path: Path
) -> None:
    code = HEAD + (
        "@on.before_turn\nasync def f(event):\n    while True:\n"
        "        try:\n            await asyncio.Event().wait()\n"
        "        except asyncio.CancelledError:\n            pass\n"
    )
    write_plugin(
        site, "broken", code=code, manifest=manifest_of("broken", hooks={"before_turn": 1})
    )
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text(
        f"agents: {{defaults: {{model: scripted/one}}}}\n"
        f"plugins: {{policy: listed, enabled: [broken], local: [{SCRIPTED}],"
        " limits: {broken.before_turn: 0.1}}\n"
    )

    said = command(site, home, tmp_path, "agent", "-m", "hello")

    assert "You said: hello" in said
    assert "plugin 'broken' failed: no answer within 0.1 seconds, and it does not end" in said


def test_nothing_is_loaded_from_the_current_directory_or_the_workspace(
    site: Path, tmp_path: Path
) -> None:
    home, workspace = tmp_path / "home", tmp_path / "home" / "workspace"
    workspace.mkdir(parents=True)
    trace = tmp_path / "loaded"
    code = f"open({str(trace)!r}, 'a').write(__name__)\n"
    write_plugin(
        workspace, "lurking", code=code, manifest=manifest_of("lurking", hooks={"before_turn": 1})
    )
    (workspace / "plugin.py").write_text(code)
    (workspace / "nanobot_lurking.py").write_text(code)
    (workspace / "sitecustomize.py").write_text(code)

    said = command(site, home, workspace, "agent", "-m", "hello")
    listed = command(site, home, workspace, "plugins", "list")

    assert said
    assert "lurking" not in listed
    assert not trace.exists()
