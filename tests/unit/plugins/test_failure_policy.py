"""The owner decides for a plugin whether the failure of a hook stops what it processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nanobot_core import (
    Allow,
    ConfigError,
    ContentReady,
    Decision,
    Deny,
    HookError,
    ToolCall,
    ToolCallProposed,
    on,
)
from nanobot_core.config.loading import load_config
from nanobot_core.plugins.host import PluginHost
from tests.distributions import manifest_of, write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import HEAD, TURN, reconfigured

pytestmark = pytest.mark.anyio

PROPOSED = ToolCallProposed(
    turn=TURN, call=ToolCall("c1", "exec", {}), origin="shell@1", read_only=False
)
ANSWER = ContentReady(turn=TURN, content="as it was")


class Guard:
    @on.authorize_tool_call
    def judge(self, event: ToolCallProposed) -> Decision | None:
        raise LookupError("no rules")


class Sign:
    @on.finalize_content
    def sign(self, event: ContentReady) -> str | None:
        raise LookupError("no pen")


class Seal:
    @on.finalize_content(critical=True)
    def seal(self, event: ContentReady) -> str | None:
        raise LookupError("no wax")


def policy(**failures: str) -> dict[str, Any]:
    return {"plugins.failures": {key.replace("__", "."): each for key, each in failures.items()}}


@pytest.mark.promise(9)
@pytest.mark.parametrize(
    ("settings", "decision"),
    [
        ({}, Deny),
        (policy(guard__authorize_tool_call="open"), Allow),
        (policy(authorize_tool_call="open"), Allow),
        (policy(authorize_tool_call="open", guard__authorize_tool_call="closed"), Deny),
        (policy(other__authorize_tool_call="open"), Deny),
    ],
)
async def test_a_gate_that_fails_refuses_unless_the_owner_opens_it(
    make_host: MakeHost, settings: dict[str, Any], decision: type
) -> None:
    host = make_host(settings)
    await host.register(Guard(), "guard")

    for _ in range(5):  # with an open circuit as well
        verdict = await host.hooks.authorize_tool_call(PROPOSED)

        assert isinstance(verdict.decision, decision)


@pytest.mark.promise(9)
@pytest.mark.parametrize(
    ("plugin", "settings", "stops"),
    [
        (Sign(), {}, False),
        (Sign(), policy(pen__finalize_content="closed"), True),
        (Seal(), {}, True),
        (Seal(), policy(pen__finalize_content="open"), False),
    ],
)
async def test_a_chain_that_fails_stops_where_the_owner_closes_it(
    make_host: MakeHost, plugin: object, settings: dict[str, Any], stops: bool
) -> None:
    host = make_host(settings)
    await host.register(plugin, "pen")

    if stops:
        with pytest.raises(HookError, match="pen"):
            await host.hooks.finalize_content(ANSWER)
    else:
        assert await host.hooks.finalize_content(ANSWER) == "as it was"


def write_broken(site: Path) -> None:
    """Write plugins with a gate and a chain, of which neither can be imported."""
    for plugin_id, hook in (("guard", "authorize_tool_call"), ("pen", "finalize_content")):
        manifest = manifest_of(plugin_id, hooks={hook: 1})
        write_plugin(site, plugin_id, code=HEAD + "import no_such_module\n", manifest=manifest)


async def effects(host: PluginHost) -> tuple[bool, bool]:
    """Return whether tool calls and answers pass."""
    verdict = await host.hooks.authorize_tool_call(PROPOSED)
    try:
        await host.hooks.finalize_content(ANSWER)
    except HookError:
        return isinstance(verdict.decision, Allow), False
    return isinstance(verdict.decision, Allow), True


@pytest.mark.promise(9)
async def test_the_same_holds_for_a_plugin_that_does_not_run(
    make_host: MakeHost, site: Path, home: Path
) -> None:
    write_broken(site)
    host = make_host()
    await host.start()
    by_kind = await effects(host)
    other = policy(guard__authorize_tool_call="open", pen__finalize_content="closed")

    await reconfigured(host, home, other)

    assert by_kind == (False, True)
    assert await effects(host) == (True, False)


@pytest.mark.promise(9)
async def test_an_installed_plugin_is_closed_without_any_mark_in_its_code(
    make_host: MakeHost, site: Path
) -> None:
    code = HEAD + "@on.finalize_content\ndef sign(event): 1 / 0\n"
    manifest = manifest_of("pen", hooks={"finalize_content": 1})
    write_plugin(site, "pen", code=code, manifest=manifest)
    host = make_host(policy(pen__finalize_content="closed"))
    await host.start()

    with pytest.raises(HookError, match="ZeroDivisionError"):
        await host.hooks.finalize_content(ANSWER)


async def test_another_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plugins\.failures"):
        load_config(None, environ={}, overrides=policy(guard__x="ajar"), home=tmp_path)


async def test_a_hook_that_does_not_exist_is_named(
    make_host: MakeHost, warnings: list[str]
) -> None:
    await make_host(policy(authorise_tool_call="open")).start()

    assert any("plugins.failures names hook 'authorise_tool_call'" in line for line in warnings)
