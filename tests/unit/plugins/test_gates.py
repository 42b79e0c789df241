"""What a plugin would judge is refused while it does not run, and only then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import (
    Allow,
    ContentReady,
    Decision,
    Deny,
    HookError,
    InboundMessage,
    MessageComposed,
    MessageReceived,
    OutboundMessage,
    PluginError,
    Refuse,
    ToolCall,
    ToolCallProposed,
    ToolOutcome,
    ToolResultReady,
    ToolsOffered,
    on,
)
from nanobot_core.hooks.caller import GATES, declared_hooks
from nanobot_core.messages import JsonObject
from nanobot_core.plugins.catalogue import PluginFilter
from nanobot_core.plugins.host import PluginHost
from nanobot_core.testing import FakeClock
from tests.distributions import manifest_of, write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import HEAD, READY, TURN, reconfigured, report

pytestmark = pytest.mark.anyio

CALL = ToolCallProposed(
    turn=TURN, call=ToolCall("1", "weigh", {}), origin="scales@1", read_only=True
)
MESSAGE = MessageReceived(
    message=InboundMessage(channel="line", sender_id="me", chat_id="1", content="hello")
)
JUDGE = "@on.authorize_tool_call\ndef judge(event): return Allow()\n"
POLICY = HEAD + JUDGE
DOOR = HEAD + "@on.admit_message\ndef admit(event): return None\n"
JUDGES = {"hooks": {"authorize_tool_call": 1}}


async def asked(host: PluginHost) -> tuple[str, str]:
    """Return why a call and why a message is refused; empty where it is not."""
    hooks = host.hooks
    call, message = "", ""
    if hooks.authorize_tool_call:
        decision = (await hooks.authorize_tool_call(CALL)).decision
        call = decision.reason if isinstance(decision, Deny) else ""
    if hooks.admit_message:
        refusal = await hooks.admit_message(MESSAGE)
        message = refusal.reason if refusal else ""
    return call, message


def test_every_gate_says_how_it_refuses_and_what_it_judges() -> None:
    points = declared_hooks()

    assert all(points[name].refuse and points[name].judges for name in GATES)


def missing(site: Path) -> None:
    """Nothing is installed."""


def one(
    code: str, manifest: JsonObject | str | None = None, requires: Sequence[str] = ()
) -> Callable[[Path], None]:
    def write(site: Path) -> None:
        write_plugin(site, "policy", code=code, manifest=manifest, requires=requires)

    return write


SETTINGS = {"path": "policy", "model": "acme_policy.plugin:Strict", "schema": {}}
WITH_SETTINGS = POLICY + (
    "class Strict(PluginSettings):\n    level: int = 1\n"
    "@on.contribute_settings\n"
    "def f(): return [SettingsSection('policy', 'acme_policy.plugin:Strict')]\n"
)
STARTS = {"hooks": {"authorize_tool_call": 1, "start": 1}}
FAILED: dict[str, tuple[Callable[[Path], None], str, bool]] = {
    "import error": (one("1 / 0", manifest_of("policy", **JUDGES)), "ZeroDivisionError", False),
    "start fails": (
        one(
            POLICY + "@on.start\ndef s(ctx): raise OSError('off')", manifest_of("policy", **STARTS)
        ),
        "its start failed: OSError: off",
        False,
    ),
    "wrong settings": (
        one(WITH_SETTINGS, manifest_of("policy", settings=[SETTINGS], **JUDGES)),
        "policy.level",
        False,
    ),
    "requirement not installed": (
        one(POLICY, manifest_of("policy", **JUDGES), requires=("no-such-thing>=2",)),
        "it needs no-such-thing, which is not installed",
        False,
    ),
    "plugin that it requires not installed": (
        one(POLICY, manifest_of("policy", facts={"requires": ["list"]}, **JUDGES)),
        "it requires plugin 'list', which is not installed",
        False,
    ),
    "undeclared": (one(POLICY, manifest_of("policy", hooks={"before_turn": 1})), "declare", False),
    "undeclared as critical": (
        one(
            HEAD + "@on.authorize_tool_call\ndef judge(event): return Allow()\n"
            "@on.finalize_content(critical=True)\ndef redact(event): return None\n",
            manifest_of("policy", hooks={"authorize_tool_call": 1, "finalize_content": 1}),
        ),
        "it implements 'finalize_content' as critical, which its manifest does not declare",
        False,
    ),
    "examined in vain": (one("import no_such_thing"), "'no_such_thing' is not installed", True),
    "damaged manifest": (one(POLICY, "{"), "its manifest cannot be used", True),
    "not installed": (missing, "the configuration names it and it is not installed", True),
}


@pytest.mark.promise(13)
@pytest.mark.parametrize("fault", FAILED)
async def test_what_it_would_judge_is_refused_and_said_everywhere(
    site: Path, make_host: MakeHost, fault: str, warnings: list[str]
) -> None:
    write, reason, is_unknown = FAILED[fault]
    write(site)
    if fault == "undeclared":
        reason = "'authorize_tool_call', which its manifest does not declare"
    host = make_host({"plugins.enabled": ["policy"], "policy.level": "none"})

    await host.start()
    call, message = await asked(host)

    for told in (call, *([message] if is_unknown else [])):
        assert told.startswith("plugin 'policy' does not run: ")
        assert reason in told
        assert report(host, "policy").remedy in told
        assert "run nanobot plugins disable policy" in told
    assert bool(message) == is_unknown
    assert sum(call in told for told in warnings) == 1
    assert "every tool call" in report(host, "policy").reason
    assert report(host, "policy").reason.endswith("is refused until it runs")


@pytest.mark.parametrize("fault", FAILED)
@pytest.mark.parametrize("way", ["disabled", "without", "safe"])
async def test_what_the_owner_leaves_out_refuses_nothing(
    site: Path, make_host: MakeHost, fault: str, way: str
) -> None:
    FAILED[fault][0](site)
    settings: dict[str, Any] = {"plugins.enabled": ["policy"]}
    if way == "disabled":
        settings["plugins.disabled"] = ["policy"]
    filters = {
        "without": PluginFilter(without=frozenset({"policy"})),
        "safe": PluginFilter(safe=True),
    }
    host = make_host(settings, plugin_filter=filters.get(way))

    await host.start()

    assert await asked(host) == ("", "")


async def test_only_what_it_would_judge_is_refused(site: Path, make_host: MakeHost) -> None:
    write_plugin(
        site, "door", code="1 / 0", manifest=manifest_of("door", hooks={"admit_message": 1})
    )
    write_plugin(site, "ear", code="1 / 0", manifest=manifest_of("ear", hooks={"before_turn": 1}))
    host = make_host()

    await host.start()
    call, message = await asked(host)

    assert (call, "door" in message) == ("", True)
    assert report(host, "ear").reason.endswith("division by zero")


async def test_a_plugin_that_the_policy_leaves_out_refuses_nothing_although_it_is_broken(
    site: Path, make_host: MakeHost
) -> None:
    write_plugin(site, "policy", code=POLICY, manifest="{")
    host = make_host({"plugins.policy": "listed"})

    await host.start()

    assert await asked(host) == ("", "")


EVENTS: dict[str, object] = {
    "rewrite_tools": ToolsOffered(turn=TURN, tools=()),
    "rewrite_tool_result": ToolResultReady(
        turn=TURN, call=CALL.call, result=ToolOutcome(text="12", is_error=False)
    ),
    "finalize_content": ContentReady(turn=TURN, content="12"),
    "rewrite_outbound": MessageComposed(
        message=OutboundMessage(channel="line", chat_id="1", content="12")
    ),
}


@pytest.mark.parametrize("hook", EVENTS)
@pytest.mark.parametrize("is_installed", [True, False])
async def test_a_chain_marked_critical_stops_while_its_plugin_does_not_run(
    site: Path, make_host: MakeHost, home: Path, hook: str, is_installed: bool
) -> None:
    manifest = manifest_of("policy", hooks={hook: 1}, critical=[hook])
    write_plugin(site, "policy", code="1 / 0", manifest=manifest)
    settings: dict[str, Any] = {"plugins.enabled": ["policy"]}
    make_host(settings).catalogue.remember(home)
    if not is_installed:
        next(site.glob("acme_policy*.dist-info")).rename(site / "uninstalled")
    host = make_host(settings)

    await host.start()

    for _ in range(5):  # however often: each refusal gives the reason
        with pytest.raises(HookError, match=r"plugin 'policy' does not run: .*plugins disable"):
            await getattr(host.hooks, hook)(EVENTS[hook])
    assert await asked(host) == ("", "")
    assert "is refused until it runs" in report(host, "policy").reason
    await host.stop()
    host = make_host({"plugins.disabled": ["policy"]})
    await host.start()
    assert not getattr(host.hooks, hook)


async def test_a_message_that_must_be_rewritten_and_cannot_be_is_refused_with_a_reply(
    site: Path, make_host: MakeHost
) -> None:
    manifest = manifest_of("policy", hooks={"rewrite_inbound": 1}, critical=["rewrite_inbound"])
    write_plugin(site, "policy", code="1 / 0", manifest=manifest)
    host = make_host()

    await host.start()
    refusal = await host.hooks.admit_message(MESSAGE)

    assert refusal is not None
    assert "plugin 'policy' does not run" in refusal.reason
    assert "plugin 'policy'" in refusal.reply
    assert not host.hooks.rewrite_inbound
    assert (await asked(host))[0] == ""


async def test_a_policy_of_a_channel_that_is_off_refuses_nothing(
    site: Path, make_host: MakeHost
) -> None:
    manifest = manifest_of("policy", when={"authorize_tool_call": "channel:line"}, **JUDGES)
    write_plugin(site, "policy", code="1 / 0", manifest=manifest)
    off, on_ = make_host(), make_host({"channels.line": {"enabled": True}})

    await off.start()
    await on_.start()

    assert await asked(off) == ("", "")
    assert (await asked(on_))[0]


async def test_it_judges_again_once_it_runs(site: Path, make_host: MakeHost, home: Path) -> None:
    package = write_plugin(site, "policy", code="1 / 0", manifest=manifest_of("policy", **JUDGES))
    host = make_host()
    await host.start()
    assert (await asked(host))[0]

    (package / "plugin.py").write_text(POLICY)
    await host.changes.reload("policy")

    assert await asked(host) == ("", "")
    assert report(host, "policy").state == "active"


@pytest.mark.parametrize("is_described", [True, False])
@pytest.mark.parametrize("way", ["command", "configuration"])
async def test_disabling_it_ends_the_refusals_and_its_trouble(
    site: Path, make_host: MakeHost, home: Path, way: str, is_described: bool
) -> None:
    manifest = manifest_of("policy", **JUDGES) if is_described else None
    write_plugin(site, "policy", code="1 / 0", manifest=manifest)
    host = make_host()
    await host.start()
    assert (await asked(host))[0]

    if way == "command":
        await host.changes.disable("policy")
        with pytest.raises(PluginError, match="disabled while the program runs"):
            await host.changes.disable("policy")
    else:
        await reconfigured(host, home, {"plugins.disabled": ["policy"]})

    assert await asked(host) == ("", "")
    assert report(host, "policy").state == "disabled"


@pytest.mark.parametrize("way", ["reload", "reconfigure"])
async def test_a_reload_that_fails_leaves_the_former_judge_at_work(
    site: Path, make_host: MakeHost, home: Path, way: str
) -> None:
    code = HEAD + "@on.authorize_tool_call\ndef judge(event): return Deny('as before')\n"
    package = write_plugin(site, "policy", code=code, manifest=manifest_of("policy", **JUDGES))
    host = make_host()
    await host.start()

    (package / "plugin.py").write_text("1 / 0")
    if way == "reload":
        with pytest.raises(PluginError, match="ZeroDivisionError"):
            await host.changes.reload("policy")
    else:
        info = next(site.glob("acme_policy*.dist-info"))
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-policy\nVersion: 2.0\n")
        info.rename(site / "acme_policy-2.0.dist-info")
        change = await reconfigured(host, home)
        assert "ZeroDivisionError" in change.failed["policy"]

    assert await asked(host) == ("as before", "")
    assert report(host, "policy").state == "degraded"
    assert "continues as it was" in report(host, "policy").reason
    await host.changes.disable("policy")
    assert report(host, "policy").state == "disabled"
    assert await asked(host) == ("", "")


@pytest.mark.parametrize("is_described", [True, False])
async def test_a_judge_that_comes_while_the_host_runs_and_cannot_start_refuses(
    site: Path, make_host: MakeHost, home: Path, is_described: bool
) -> None:
    host = make_host()
    await host.start()
    assert await asked(host) == ("", "")
    manifest = manifest_of("policy", **JUDGES) if is_described else None
    write_plugin(site, "policy", code="1 / 0", manifest=manifest)

    change = await reconfigured(host, home)

    assert "ZeroDivisionError" in change.failed["policy"]
    assert "ZeroDivisionError" in (await asked(host))[0]


class Ill:
    """Judges, and fails at something else."""

    @on.before_turn
    def before_turn(self, event: object) -> None:
        raise ValueError("ill")

    @on.authorize_tool_call
    def judge(self, event: ToolCallProposed) -> Decision:
        return Allow()

    @on.admit_message
    def admit(self, event: MessageReceived) -> Refuse | None:
        return None


async def test_a_judge_in_quarantine_refuses_until_its_owner_decides(
    make_host: MakeHost, clock: FakeClock
) -> None:
    host = make_host()
    await host.register(Ill(), "ill")

    for _ in range(12):
        if host.hooks.before_turn:
            await host.hooks.before_turn(READY)
        await clock.advance(601)

    assert report(host, "ill").state == "quarantined"
    assert all("'ill' does not run: it failed repeatedly" in told for told in await asked(host))
    await host.changes.disable("ill")
    assert await asked(host) == ("", "")


@pytest.mark.promise(12)
async def test_a_judge_with_an_open_circuit_refuses_and_that_is_shown(make_host: MakeHost) -> None:
    class Broken:
        @on.authorize_tool_call
        def judge(self, event: ToolCallProposed) -> Decision:
            raise ValueError("no list")

    host = make_host()
    await host.register(Broken(), "policy")

    told = [(await asked(host))[0] for _ in range(5)]

    for each in told:
        assert "'policy'" in each
        assert "ValueError: no list" in each
        assert "nanobot plugins disable policy" in each
    condition = report(host, "policy")
    assert condition.state == "degraded"
    assert "authorize_tool_call: ValueError: no list" in condition.reason
    assert condition.remedy
