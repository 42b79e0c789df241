"""The host starts, names, limits and stops plugins, and one in trouble is trouble of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nanobot_core import (
    AppReady,
    ConfigInvalid,
    ContentReady,
    Health,
    LazyTool,
    NameConflict,
    PluginContext,
    PluginError,
    PluginLoadFailed,
    PluginNotFound,
    PluginRejected,
    Tool,
    ToolContext,
    TurnInfo,
    on,
    tool,
)
from nanobot_core.messages import JsonObject
from nanobot_core.plugins.host import PluginHost
from nanobot_core.plugins.manifest import MANIFEST_FILE
from nanobot_core.plugins.report import PluginReport
from nanobot_core.plugins.selection import Narrowing
from nanobot_core.testing import FakeClock
from tests.distributions import manifest_of, tool_declaration, write_plugin
from tests.unit.plugins.conftest import MakeHost

pytestmark = pytest.mark.anyio
READY = AppReady(version="1", plugins=())
HEAD = "from nanobot_core import *\nimport asyncio\nlog = []\n"
TURN = TurnInfo(
    id="t", session_key="cli:direct", channel="cli", chat_id="direct", sender_id="me", source="cli"
)


def listening(plugin_id: str, *more: str, **fields: object) -> JsonObject:
    """Return the manifest of a plugin that listens to ``app_ready``."""
    return manifest_of(plugin_id, hooks=dict.fromkeys(("app_ready", *more), 1), **fields)


def report(host: PluginHost, plugin_id: str) -> PluginReport:
    return next(item for item in host.reports() if item.id == plugin_id)


def log_of(plugin_id: str) -> list[str]:
    """Return what the plugin of the site folder has written down."""
    from importlib import import_module

    found: list[str] = import_module(f"acme_{plugin_id}.plugin").log
    return found


@tool(name="shout")
async def shout(context: ToolContext, text: str) -> str:
    """Say it louder."""
    return text.upper()


EAR = (
    HEAD
    + """
@on.start
def start(ctx): log.append(f"start {ctx.id}")
@on.app_ready
def ready(event): log.append("ready")
@on.stop
def stop(ctx, reason): log.append(f"stop {reason}")
"""
)


async def test_a_plugin_that_listens_is_started_once_and_stopped_once(
    site: Path, make_host: MakeHost
) -> None:
    write_plugin(site, "ear", code=EAR, manifest=listening("ear", "start", "stop"))
    host = make_host()

    await host.start()
    first = await host.activate("ear")
    assert await host.activate("ear") is first
    await host.hooks.app_ready(READY)
    condition = report(host, "ear")
    await host.stop()
    await host.stop()

    assert log_of("ear") == ["start ear", "ready", "stop shutdown"]
    assert (condition.state, condition.reason) == ("active", "started")
    assert condition.hooks[1].calls == 1
    assert not host.hooks.app_ready
    with pytest.raises(RuntimeError, match="started twice"):
        await first.start()


async def test_plugins_that_only_contribute_wait_until_they_are_needed(
    site: Path, make_host: MakeHost
) -> None:
    declared = manifest_of("scales", declarations=[tool_declaration("weigh", factory="x:y")])
    code = HEAD + "@on.contribute_tools\ndef tools(ctx): return [LazyTool('weigh', 'x:y')]\n"
    write_plugin(site, "scales", code=code, manifest=declared)
    host = make_host()

    await host.start()
    assert report(host, "scales").state == "found"
    tools, again = await asyncio.gather(host.load_tools(), host.load_tools())

    assert tools is again
    assert tools.names() == ["weigh"]
    assert report(host, "scales").state == "active"


async def test_a_plugin_for_a_channel_waits_for_that_channel(
    site: Path, make_host: MakeHost
) -> None:
    code = HEAD + (
        "@on.app_ready(when='channel:radio')\ndef ready(event): log.append('ready')\n"
        "@on.start\ndef start(ctx): log.append('start')\n"
    )
    manifest = listening("ear", "start", when={"app_ready": "channel:radio"})
    write_plugin(site, "ear", code=code, manifest=manifest)
    off, on_air = make_host(), make_host({"channels.radio": {"enabled": True, "token": "x"}})

    await off.start()
    assert report(off, "ear").state == "found"
    await off.activate("ear")
    assert not off.hooks.app_ready
    await on_air.start()
    await on_air.hooks.app_ready(READY)

    assert log_of("ear") == ["start", "start", "ready"]


async def test_a_plugin_comes_after_those_that_it_requires(site: Path, make_host: MakeHost) -> None:
    file = repr(str(site / "order"))
    code = HEAD + (
        "@on.start\ndef start(ctx):\n"
        f"    with open({file}, 'a') as order: order.write(ctx.id + ' ')\n"
    )
    needs = manifest_of("needy", hooks={"start": 1}, facts={"requires": ["base"]})
    write_plugin(site, "needy", code=code, manifest=needs)
    write_plugin(site, "base", code=code, manifest=manifest_of("base", hooks={"start": 1}))

    await make_host().activate("needy")

    assert (site / "order").read_text() == "base needy "


async def test_a_plugin_whose_requirement_fails_is_out_for_that_reason(
    site: Path, make_host: MakeHost
) -> None:
    write_plugin(site, "needy", manifest=manifest_of("needy", facts={"requires": ["base"]}))
    write_plugin(site, "base", code="1 / 0", manifest=manifest_of("base"))
    host = make_host()

    with pytest.raises(PluginLoadFailed, match="division by zero"):
        await host.activate("needy")

    assert report(host, "needy").reason.startswith("it requires plugin 'base', which cannot run: ")
    assert report(host, "base").state == "import-error"


FAILING_START = (
    HEAD
    + """
@on.start
async def start(ctx):
    ctx.on_dispose(lambda: log.append("closed"))
    ctx.spawn(asyncio.Event().wait(), name="work")
    raise OSError("no network")
@on.app_ready
def ready(event): log.append("ready")
"""
)


async def test_a_plugin_whose_start_fails_gives_back_what_it_was_lent(
    site: Path, make_host: MakeHost, warnings: list[str]
) -> None:
    write_plugin(site, "late", code=FAILING_START, manifest=listening("late", "start"))
    write_plugin(site, "ear", code=EAR, manifest=listening("ear", "start", "stop"))
    host = make_host()

    await host.start()
    await host.hooks.app_ready(READY)

    assert log_of("late") == ["closed"]
    assert "ready" in log_of("ear")
    assert report(host, "late").state == "import-error"
    assert report(host, "late").reason == "its start failed: OSError: no network"
    assert report(host, "late").remedy
    assert any("late" in told and "no network" in told for told in warnings)
    assert not [task for task in asyncio.all_tasks() if "late" in task.get_name()]


async def test_a_start_that_takes_too_long_is_ended_even_when_it_ignores_that(
    site: Path, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanobot_core.hooks.implementation.CANCEL_GRACE_S", 0.05)
    code = (
        HEAD
        + """
enough = asyncio.Event()
@on.start
async def start(ctx):
    while not enough.is_set():
        try:
            await enough.wait()
        except asyncio.CancelledError:
            log.append("ignored")
"""
    )
    write_plugin(site, "deaf", code=code, manifest=manifest_of("deaf", hooks={"start": 1}))
    host = make_host({"plugins.limits": {"deaf.start": 0.05}})

    with pytest.raises(PluginLoadFailed, match="does not end when it is cancelled"):
        await host.activate("deaf")

    from importlib import import_module

    import_module("acme_deaf.plugin").enough.set()


async def test_every_plugin_is_stopped_although_others_fail_to(
    site: Path, make_host: MakeHost, warnings: list[str]
) -> None:
    for plugin_id in ("a", "b", "c"):
        fails = "" if plugin_id == "a" else "\n    raise SystemExit(1)"
        code = HEAD + (
            "@on.app_ready\ndef ready(event): ...\n"
            "@on.start\ndef start(ctx): ctx.on_dispose(lambda: log.append('closed'))\n"
            f"@on.stop\ndef stop(ctx, reason):\n    log.append('stopped'){fails}\n"
        )
        write_plugin(site, plugin_id, code=code, manifest=listening(plugin_id, "start", "stop"))
    host = make_host()
    await host.start()

    await host.stop()

    for plugin_id in ("a", "b", "c"):
        assert log_of(plugin_id) == ["stopped", "closed"]
    assert sum("hook 'stop'" in told for told in warnings) == 2


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"plugins.required": ["gone"]}, PluginNotFound, "required and not installed"),
        ({"plugins.required": ["broken"]}, PluginLoadFailed, "division by zero"),
        ({"plugins.required": ["ear"], "plugins.disabled": ["ear"]}, PluginError, "disabled"),
        ({"plugins.required": ["picky"], "picky": {"sides": "x"}}, ConfigInvalid, "picky.sides"),
    ],
)
async def test_a_required_plugin_that_cannot_run_ends_the_start_and_nothing_stays_started(
    site: Path,
    make_host: MakeHost,
    settings: JsonObject,
    error: type[Exception],
    message: str,
) -> None:
    write_plugin(site, "ear", code=EAR, manifest=listening("ear", "start", "stop"))
    write_plugin(site, "broken", code="1 / 0", manifest=manifest_of("broken"))
    write_picky(site)
    host = make_host(settings)
    if "ear" not in str(settings):
        await host.activate("ear")

    with pytest.raises(error, match=message):
        await host.start()

    assert host.active_labels() == ()


PICKY = (
    HEAD
    + """
class Settings(PluginSettings):
    sides: int = 6
@on.contribute_settings
def settings(): return [SettingsSection("picky", "acme_picky.plugin:Settings")]
@on.app_ready
def ready(event): ...
@on.start
def start(ctx):
    log.append(str(ctx.settings(Settings).sides))
"""
)


def write_picky(site: Path) -> None:
    section = {"path": "picky", "model": "acme_picky.plugin:Settings", "schema": {}}
    write_plugin(
        site, "picky", code=PICKY, manifest=listening("picky", "start", settings=[section])
    )


async def test_settings_are_checked_before_start_and_handed_over(
    site: Path, make_host: MakeHost
) -> None:
    write_picky(site)
    host = make_host({"picky": {"sides": 20}})

    await host.start()

    assert log_of("picky") == ["20"]
    assert report(host, "picky").state == "active"


async def test_wrong_settings_of_one_plugin_spare_the_rest(
    site: Path, make_host: MakeHost, tmp_path: Path
) -> None:
    write_picky(site)
    write_plugin(site, "ear", code=EAR, manifest=listening("ear", "start", "stop"))
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("logging: {file: false}\npicky:\n  sides: many\n")
    host = make_host()

    await host.start()

    assert report(host, "picky").state == "settings-error"
    assert f"{home / 'config.yaml'}:3: picky.sides" in report(host, "picky").reason
    assert report(host, "ear").state == "active"


async def test_code_that_does_more_than_its_manifest_is_refused(
    site: Path, make_host: MakeHost
) -> None:
    write_plugin(site, "ear", code=EAR, manifest=listening("ear"))
    host = make_host()

    await host.start()

    assert (
        report(host, "ear").reason == "it implements 'start', which its manifest does not declare"
    )
    assert report(host, "ear").remedy == "run nanobot plugins build"


async def test_a_contribution_that_is_not_declared_is_refused(
    site: Path, make_host: MakeHost
) -> None:
    code = HEAD + "@on.contribute_channels\ndef channels(ctx): return []\n"
    write_plugin(site, "radio", code=code, manifest=manifest_of("radio"))

    with pytest.raises(PluginRejected, match="'contribute_channels', which its manifest"):
        await make_host().activate("radio")


@pytest.mark.parametrize(
    ("plugin_id", "message"),
    [("nobody", "not installed"), ("out", "named under plugins.disabled")],
)
async def test_what_may_not_run_is_not_activated(
    site: Path, make_host: MakeHost, plugin_id: str, message: str
) -> None:
    write_plugin(site, "out", code="1 / 0", manifest=listening("out"))
    host = make_host({"plugins.disabled": ["out"]})

    await host.start()
    with pytest.raises(PluginError, match=message):
        await host.activate(plugin_id)

    assert report(host, "out").state == "disabled"


async def test_safe_leaves_out_local_files_and_strangers(site: Path, make_host: MakeHost) -> None:
    (site / "mine.py").write_text("1 / 0")
    write_plugin(site, "theirs", code="1 / 0", manifest=listening("theirs"))
    host = make_host({"plugins.local": [str(site / "mine.py")]}, narrowing=Narrowing(safe=True))

    await host.start()

    assert {item.reason for item in host.reports()} == {"left out by --safe"}


async def test_a_local_file_runs(site: Path, make_host: MakeHost) -> None:
    (site / "mine.py").write_text(EAR)
    host = make_host({"plugins.local": [str(site / "mine.py")]})

    await host.start()

    assert (report(host, "mine").state, host.active_labels()) == ("active", ("mine",))


async def test_an_undescribed_plugin_is_examined_when_it_is_asked_for(
    site: Path, make_host: MakeHost
) -> None:
    write_plugin(site, "ear", code=EAR)
    write_plugin(site, "broken", code="1 / 0")
    host = make_host()

    await host.activate("ear")
    with pytest.raises(PluginError, match="division by zero"):
        await host.activate("broken")

    assert host.hooks.app_ready


async def test_slips_in_the_configuration_are_told(
    make_host: MakeHost, warnings: list[str]
) -> None:
    host = make_host(
        {
            "plugins.enabled": ["telegram"],
            "plugins.order": {"app_reddy": ["a"]},
            "plugins.limits": {"a.wrap_model_cal": 3, "files.before_turn": 3},
        }
    )

    await host.start()

    assert [told.strip() for told in warnings] == [
        "plugin 'telegram' is not installed; pip install nanobot-telegram",
        "plugins.order names hook 'app_reddy', which does not exist; did you mean 'app_ready'?",
        (
            "plugins.limits names hook 'wrap_model_cal', which does not exist; "
            "did you mean 'wrap_model_call'?"
        ),
    ]
    assert report(host, "telegram").state == "not-installed"
    assert report(host, "telegram").remedy == "pip install nanobot-telegram"


class Marker:
    """Puts its mark at the end of an answer."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    @on.finalize_content
    def finalize_content(self, event: ContentReady) -> str:
        return event.content + self._mark


async def test_the_owner_may_order_the_plugins_of_a_hook(make_host: MakeHost) -> None:
    host = make_host({"plugins.order": {"finalize_content": ["c", "a"]}})
    for plugin_id in "abc":
        await host.register(Marker(plugin_id), plugin_id)

    content = await host.hooks.finalize_content(ContentReady(turn=TURN, content=""))

    assert content == "cab"


async def test_the_owner_may_limit_a_hook_of_one_plugin(make_host: MakeHost) -> None:
    class Slow:
        @on.finalize_content
        async def finalize_content(self, event: ContentReady) -> str:
            await asyncio.Event().wait()
            return "late"

    host = make_host({"plugins.limits": {"slow.finalize_content": 0.01}})
    await host.register(Slow(), "slow")

    content = await host.hooks.finalize_content(ContentReady(turn=TURN, content="as it was"))

    assert content == "as it was"
    assert report(host, "slow").hooks[0].timeouts == 1


async def test_a_registered_object_counts_at_once_and_is_listed(make_host: MakeHost) -> None:
    class Loud:
        @on.contribute_tools
        def contribute_tools(self, ctx: PluginContext) -> list[Tool | LazyTool]:
            return [shout]

    host = make_host()
    await host.load_tools()

    await host.register(Loud(), "loud")

    assert "shout" in host.tools
    assert [name for name, _ in host.declared("tools")] == ["loud"]
    assert report(host, "loud").reason == "registered by the program"
    assert host.active_labels() == ("loud",)
    with pytest.raises(PluginRejected, match="there already"):
        await host.register(Loud(), "loud")


async def test_what_cannot_be_registered_leaves_nothing(make_host: MakeHost) -> None:
    class Wrong:
        @on.start
        def start(self, ctx: PluginContext) -> None:
            raise OSError("no")

        @property
        def surprise(self) -> str:
            raise RuntimeError("looked at")

    host = make_host()

    with pytest.raises(PluginLoadFailed, match=r"looked at|its start failed"):
        await host.register(Wrong(), "wrong")

    assert host.reports() == []
    assert not host.active_labels()


async def test_a_name_that_two_plugins_claim_is_spelt_out_for_both(
    site: Path, make_host: MakeHost
) -> None:
    for plugin_id in ("a", "b"):
        write_tool_plugin(site, plugin_id, "weigh")
    host = make_host()

    tools = await host.load_tools()

    assert tools.names() == ["a__weigh", "b__weigh"]
    assert host.clashes[0].plugins == ("a", "b")


def write_tool_plugin(site: Path, plugin_id: str, name: str, code: str = "") -> None:
    declared = manifest_of(plugin_id, declarations=[tool_declaration(name, factory="x:y")])
    default = f"@on.contribute_tools\ndef tools(ctx): return [LazyTool('{name}', 'x:y')]\n"
    write_plugin(site, plugin_id, code=HEAD + (code or default), manifest=declared)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("@on.contribute_tools\ndef f(ctx): return [1]", "contribute_tools gave int"),
        ("@on.contribute_tools\ndef f(ctx): raise KeyboardInterrupt", "raised KeyboardInterrupt"),
        ("@on.contribute_tools\ndef f(ctx): return [LazyTool('other', 'x:y')]", "not declared"),
        (
            "@on.contribute_tools\ndef f(ctx): return [LazyTool('t', 'x:y')] * 2",
            "'t' is claimed by",
        ),
    ],
)
async def test_tools_of_one_plugin_that_cannot_be_taken_spare_the_others(
    site: Path, make_host: MakeHost, code: str, reason: str
) -> None:
    write_tool_plugin(site, "wrong", "t", code)
    write_tool_plugin(site, "right", "weigh")
    host = make_host()

    tools = await host.load_tools()

    assert tools.names() == ["weigh"]
    assert report(host, "wrong").state == "degraded"
    assert reason in report(host, "wrong").reason


async def test_a_tool_of_the_program_is_not_replaced_by_that_of_a_plugin(
    site: Path, make_host: MakeHost
) -> None:
    write_tool_plugin(site, "loud", "shout")
    host = make_host()
    host.tools.register(shout)

    tools = await host.load_tools()

    entry = tools.get("shout")
    assert entry is not None
    assert entry.origin == "application"
    assert report(host, "loud").state == "degraded"
    assert "'application' and 'loud'" in report(host, "loud").reason


PUBLISHING = (
    HEAD
    + '''
from nanobot_core import tool
@tool(name="mcp_one")
async def one(context: ToolContext) -> str:
    """One."""
    return "1"
@tool(name="mcp_two")
async def two(context: ToolContext) -> str:
    """Two."""
    return "2"
@tool(name="other")
async def other(context: ToolContext) -> str:
    """Other."""
    return "3"
ctx = None
@on.start
def begin(ctx):
    globals()["ctx"] = ctx
    ctx.tools.replace([one])
@on.describe_plugin
def describe(): return PluginFacts(tool_names=("mcp_*",))
'''
)


async def test_tools_published_at_start_and_later_are_offered_as_one_set(
    site: Path, make_host: MakeHost
) -> None:
    manifest = manifest_of("mcp", hooks={"start": 1}, facts={"tool_names": ["mcp_*"]})
    write_plugin(site, "mcp", code=PUBLISHING, manifest=manifest)
    host = make_host()

    tools = await host.load_tools()
    first = tools.names()
    from importlib import import_module

    code = import_module("acme_mcp.plugin")
    code.ctx.tools.replace([code.two])
    second = tools.names()
    with pytest.raises(PluginRejected, match="not declared"):
        code.ctx.tools.replace([code.other])
    host.tools.register(code.one)
    with pytest.raises(NameConflict):
        code.ctx.tools.replace([code.one])

    assert (first, second) == (["mcp_one"], ["mcp_two"])
    await host.stop()
    assert tools.names() == ["mcp_one"]


class Failing:
    @on.app_ready
    def app_ready(self, event: AppReady) -> None:
        raise ValueError("again")

    @on.stop
    def stop(self, ctx: object, reason: str) -> None:
        self.stopped = reason


async def test_a_plugin_that_fails_again_and_again_is_quarantined_and_stays_out(
    make_host: MakeHost, clock: FakeClock, site: Path, warnings: list[str]
) -> None:
    plugin = Failing()
    host = make_host()
    await host.register(plugin, "failing")
    await host.register(Marker("."), "fine")

    for _ in range(3):
        for _ in range(3):
            if host.hooks.app_ready:
                await host.hooks.app_ready(READY)
        await clock.advance(601)
        if host.hooks.app_ready:
            await host.hooks.app_ready(READY)
    await asyncio.sleep(0)

    condition = report(host, "failing")
    assert (condition.state, bool(condition.remedy)) == ("quarantined", True)
    assert condition.reason == "its hooks failed again and again (app_ready: ValueError: again)"
    assert host.active_labels() == ("fine",)
    assert sum("ValueError: again" in told for told in warnings) == 1
    await host.stop()
    assert plugin.stopped == "quarantine"


async def test_a_quarantined_plugin_is_not_activated_again(
    site: Path, make_host: MakeHost, clock: FakeClock
) -> None:
    code = HEAD + "@on.app_ready\ndef ready(event): raise ValueError\n"
    write_plugin(site, "failing", code=code, manifest=listening("failing"))
    host = make_host()
    await host.start()

    for _ in range(12):
        await host.hooks.app_ready(READY)
        await clock.advance(601)

    assert report(host, "failing").state == "quarantined"
    with pytest.raises(PluginError, match="again and again"):
        await host.context_for("failing")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("return Health(ok=False, message='tired')", Health(ok=False, message="tired")),
        ("return Health(ok=True)", Health(ok=True)),
        ("return 1", Health(ok=False, message="its check_health gave int")),
        (
            "raise OSError('no')",
            Health(ok=False, message="its check_health failed: OSError: no"),
        ),
    ],
)
async def test_health_is_what_the_plugin_says_or_what_became_of_asking(
    site: Path, make_host: MakeHost, answer: str, expected: Health
) -> None:
    code = HEAD + f"@on.check_health\ndef health(ctx): {answer}\n"
    write_plugin(site, "ill", code=code, manifest=manifest_of("ill", hooks={"check_health": 1}))
    write_plugin(site, "silent", manifest=manifest_of("silent"))
    host = make_host()

    assert await host.check_health("ill") == expected
    assert await host.check_health("silent") == Health(ok=True)


async def test_a_manifest_that_went_stale_under_the_host_is_told(
    site: Path, make_host: MakeHost
) -> None:
    package = write_plugin(site, "ear", code=EAR, manifest=listening("ear", "start", "stop"))
    (site / "acme_ear-1.0.dist-info" / "direct_url.json").write_text(
        '{"dir_info": {"editable": true}}'
    )
    (package / MANIFEST_FILE).write_text(json.dumps(manifest_of("ear")))

    with pytest.raises(PluginRejected, match="which its manifest does not declare"):
        await make_host().activate("ear")
