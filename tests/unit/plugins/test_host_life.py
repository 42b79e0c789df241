"""A plugin is started and stopped once, within its time, and says how it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot_core import (
    Health,
    PluginLoadFailed,
)
from nanobot_core.hooks.implementation import CANCEL_GRACE_S
from nanobot_core.testing import FakeClock
from tests.distributions import manifest_of, write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import (
    EAR,
    HEAD,
    READY,
    listening,
    log_of,
    report,
)

pytestmark = pytest.mark.anyio


async def test_a_plugin_that_listens_is_started_once_and_stopped_once(
    site: Path, make_host: MakeHost
) -> None:
    write_plugin(site, "ear", code=EAR, manifest=listening("ear", "start", "stop"))
    host = make_host()

    await host.start()
    first = await host.activate("ear")
    assert await host.activate("ear") is first
    await host.hooks.before_turn(READY)
    condition = report(host, "ear")
    await host.stop()
    await host.stop()

    assert log_of("ear") == ["start ear", "ready", "stop shutdown"]
    assert (condition.state, condition.reason) == ("active", "started")
    assert condition.hooks[1].calls == 1
    assert not host.hooks.before_turn


FAILING_START = (
    HEAD
    + """
@on.start
async def start(ctx):
    ctx.on_dispose(lambda: log.append("closed"))
    ctx.spawn(asyncio.Event().wait(), name="work")
    raise OSError("no network")
@on.before_turn
def ready(event): log.append("ready")
"""
)


@pytest.mark.promise(14)
async def test_a_plugin_whose_start_fails_gives_back_what_it_was_lent(
    site: Path, make_host: MakeHost, warnings: list[str]
) -> None:
    write_plugin(site, "late", code=FAILING_START, manifest=listening("late", "start"))
    write_plugin(site, "ear", code=EAR, manifest=listening("ear", "start", "stop"))
    host = make_host()

    await host.start()
    await host.hooks.before_turn(READY)

    assert log_of("late") == ["closed"]
    assert "ready" in log_of("ear")
    assert report(host, "late").state == "failed"
    assert report(host, "late").reason == "its start failed: OSError: no network"
    assert report(host, "late").remedy
    assert any("late" in told and "no network" in told for told in warnings)
    assert not [task for task in asyncio.all_tasks() if "late" in task.get_name()]


async def test_a_start_that_takes_too_long_is_ended_even_when_it_ignores_that(
    site: Path, make_host: MakeHost, clock: FakeClock
) -> None:
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
    host = make_host({"plugins.limits": {"deaf.start": 2}})
    activating = asyncio.get_running_loop().create_task(host.activate("deaf"))
    for passing_s in (2, CANCEL_GRACE_S):
        await clock.wait_for_sleepers()
        await clock.advance(passing_s)

    with pytest.raises(PluginLoadFailed, match="no answer within 2 seconds, and it does not end"):
        await activating

    from importlib import import_module

    import_module("acme_deaf.plugin").enough.set()


async def test_every_plugin_is_stopped_although_others_fail_to(
    site: Path, make_host: MakeHost, warnings: list[str]
) -> None:
    for plugin_id in ("a", "b", "c"):
        fails = "" if plugin_id == "a" else "\n    raise SystemExit(1)"
        code = HEAD + (
            "@on.before_turn\ndef ready(event): ...\n"
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
    ("answer", "expected"),
    [
        ("return Health(ok=False, message='tired')", Health(ok=False, message="tired")),
        ("return Health(ok=True)", Health(ok=True)),
        ("return 1", Health(ok=False, message="its check_health returned int")),
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

    assert await (await host.activate("ill")).check_health() == expected
    assert await (await host.activate("silent")).check_health() == Health(ok=True)
