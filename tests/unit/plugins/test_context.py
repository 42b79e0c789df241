"""What is lent to a plugin is its own, and is taken back whatever happens."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from nanobot_core import PluginContext, PluginRejected, PluginSettings, SettingsSection, on
from nanobot_core.config.secrets import MASK
from nanobot_core.plugins.context import HostContext
from tests.unit.plugins.conftest import MakeHost

pytestmark = pytest.mark.anyio


class Sides(PluginSettings):
    sides: int = 6


class Other(PluginSettings):
    """Nobody contributes it."""


class Plugin:
    """Keeps the context that it was started with."""

    ctx: PluginContext

    @on.contribute_settings
    def contribute_settings(self) -> tuple[SettingsSection, ...]:
        names = ("DICE_KEY", "DICE_HOST")
        return (SettingsSection("tools.dice", f"{__name__}:Sides", environment=names),)

    @on.start
    def start(self, ctx: PluginContext) -> None:
        self.ctx = ctx


async def context_of(make_host: MakeHost, **options: object) -> HostContext:
    plugin = Plugin()
    await make_host(**options).register(plugin, "dice")
    assert isinstance(plugin.ctx, HostContext)
    return plugin.ctx


async def test_settings_are_those_of_the_model_asked_for(make_host: MakeHost) -> None:
    context = await context_of(make_host, settings={"tools.dice": {"sides": 20}})

    assert context.settings(Sides).sides == 20
    with pytest.raises(PluginRejected, match="Other, which it does not contribute"):
        context.settings(Other)


async def test_only_variables_that_are_set_are_handed_out(make_host: MakeHost) -> None:
    context = await context_of(make_host, environ={"DICE_KEY": "k", "OTHER": "o"})

    assert context.environment(["DICE_KEY", "DICE_HOST"]) == {"DICE_KEY": "k"}


@pytest.mark.promise(25)
async def test_variables_that_are_not_declared_are_withheld_and_told(
    make_host: MakeHost, warnings: list[str]
) -> None:
    environ = {"DICE_KEY": "k", "BANK_PIN": "1", "https_proxy": "http://proxy"}
    context = await context_of(make_host, environ=environ)

    found = context.environment(["DICE_KEY", "BANK_PIN", "BANK_NAME", "https_proxy"])

    assert found == {"DICE_KEY": "k", "https_proxy": "http://proxy"}
    assert [told for told in warnings if "BANK_PIN" in told and "BANK_NAME" not in told]


async def test_a_plugin_may_declare_that_its_settings_name_variables(make_host: MakeHost) -> None:
    class Shell(Plugin):
        @on.contribute_settings
        def contribute_settings(self) -> tuple[SettingsSection, ...]:
            return (SettingsSection("tools.dice", f"{__name__}:Sides", environment=("*",)),)

    plugin, host = Shell(), make_host(environ={"CHOSEN": "c"})
    await host.register(plugin, "dice")
    active = await host.activate("dice")

    assert plugin.ctx.environment(["CHOSEN"]) == {"CHOSEN": "c"}
    assert active.manifest.capabilities == ("reads any environment variable",)


@pytest.mark.promise(42)
async def test_the_data_folder_is_the_plugins_own(make_host: MakeHost, tmp_path: Path) -> None:
    context = await context_of(make_host)

    assert context.data_dir == tmp_path / "home" / "plugins" / "dice"
    assert stat.S_IMODE(context.data_dir.stat().st_mode) == 0o700


async def test_the_configuration_is_protected(make_host: MakeHost, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yml").write_text("logging: {file: false}\n")

    context = await context_of(make_host)

    assert {home, home / "config.yml"} <= set(context.protected_paths)


async def test_log_records_carry_the_plugin(make_host: MakeHost) -> None:
    from loguru import logger

    context = await context_of(make_host)
    told: list[str] = []
    sink = logger.add(told.append, format="{extra[plugin]}: {message}")

    context.logger.info("rolled")
    logger.remove(sink)

    assert told == ["dice: rolled\n"]


async def test_lent_things_are_taken_back_tasks_first_and_closers_backwards(
    make_host: MakeHost, warnings: list[str]
) -> None:
    context = await context_of(make_host)
    order: list[str] = []
    running = asyncio.Event()

    async def work() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            order.append("task")

    async def close_slowly() -> None:
        await asyncio.sleep(0)
        order.append("async")

    def fail(error: BaseException) -> None:
        raise error

    context.spawn(work(), name="poll")
    context.on_dispose(lambda: order.append("first"))
    context.on_dispose(close_slowly)
    context.on_dispose(lambda: fail(OSError("already closed")))
    context.on_dispose(lambda: fail(SystemExit(1)))
    context.on_dispose(lambda: fail(KeyboardInterrupt()))
    await running.wait()

    await context.resources.take_back()
    await context.resources.take_back()

    assert order == ["task", "async", "first"]
    assert [told.split(" failed: ")[1].strip() for told in warnings] == [
        "KeyboardInterrupt:",
        "SystemExit: 1",
        "OSError: already closed",
    ]


async def test_what_does_not_end_is_named_and_does_not_hold_up_the_rest(
    make_host: MakeHost, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanobot_core.plugins.context.TASKS_END_S", 0.05)
    context = await context_of(make_host)
    running, enough = asyncio.Event(), asyncio.Event()
    closed: list[str] = []

    async def deaf() -> None:
        running.set()
        while not enough.is_set():
            try:
                await enough.wait()
            except asyncio.CancelledError:
                continue

    context.on_dispose(lambda: closed.append("last"))
    context.on_dispose(asyncio.Event().wait)  # type: ignore[arg-type]  # its result is ignored
    context.spawn(deaf(), name="deaf")
    await running.wait()

    await context.resources.take_back()
    enough.set()

    assert closed == ["last"]
    assert any("dice:deaf" in told and "does not end" in told for told in warnings)
    assert any("on_dispose" in told and "TimeoutError" in told for told in warnings)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
async def test_a_task_that_fails_is_reported_and_harms_nobody(
    make_host: MakeHost, warnings: list[str], error: BaseException
) -> None:
    context = await context_of(make_host)
    over = asyncio.Event()

    async def work() -> None:
        over.set()
        raise error

    context.spawn(work(), name="poll")
    await asyncio.wait_for(over.wait(), 5)
    await asyncio.sleep(0)

    assert len(warnings) == 1
    assert f"hook 'poll' of plugin 'dice' failed: {type(error).__name__}" in warnings[0]


async def test_concealed_secrets_are_masked_until_others_replace_them(make_host: MakeHost) -> None:
    host, plugin = make_host(), Plugin()
    await host.register(plugin, "dice")
    redactor = host.table.starter.loaded.redactor
    first, second, other = "token-of-1st-login", "token-of-2nd-login", "other-token-123"
    plugin.ctx.conceal([first], name="login")
    plugin.ctx.conceal([other], name="other")
    assert redactor.redact(f"{first} {other}") == f"{MASK} {MASK}"
    plugin.ctx.conceal([second, ""], name="login")

    assert redactor.mask(f"{first} {second} {other}") == f"{first} {MASK} {MASK}"
    assert redactor.secrets == {second, other}
