"""A running gateway installs a plugin, in a child process, as a page in the browser asks for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.install.packages import TOOL, Bench, Package, tool_manifest

pytestmark = pytest.mark.timeout(240)

REFUSED = ("./x.whl", "nanobot-acme @ file:///x", "nanobot-acme.py", "--yes", "no-such-thing")
SCRIPT = """\
import asyncio, json, sys
from dataclasses import asdict, replace
from pathlib import Path
from nanobot_core import NanobotError, SystemClock, on
from nanobot_core.app.application import Nanobot
from nanobot_core.app.runner import GatewayRunner
from nanobot_core.config.loading import load_config

home, found = Path(sys.argv[1]), {}

class Desk:
    @on.start
    async def start(self, ctx):
        self.operations = ctx.gateway.operations

async def refusal(work):
    try:
        await work
    except NanobotError as error:
        return str(error)

async def work(bot, operations):
    for name in json.loads(sys.argv[2]):
        found[name] = await refusal(operations.plan_install(name))
    plan = await operations.plan_install("nanobot-acme>=0.5")
    found["plan"] = asdict(plan)
    found["other"] = await refusal(operations.install(replace(plan, digest="0" * 64)))
    found["before"] = [each.id for each in operations.plugins()]
    first = asyncio.create_task(operations.install(plan))
    await asyncio.sleep(0.1)
    found["second"] = await refusal(operations.plan_install("nanobot-acme"))
    found["todo"] = list(await first)
    found["after"] = {each.id: each.state for each in operations.plugins()}

async def main():
    bot = Nanobot(load_config(home / "config.yaml", home=home))
    runner, desk, ready = GatewayRunner(bot, SystemClock()), Desk(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.run(ready.set))
        await ready.wait()
        await bot.plugins.register(desk, "desk")
        try:
            await work(bot, desk.operations)
        finally:
            runner.request_stop()

asyncio.run(main())
print(json.dumps(found))
"""


def test_what_is_planned_is_installed_and_runs_at_once(bench: Bench) -> None:
    bench.config.write_text("plugins: {policy: listed}\ngateway: {port: 0}\n")
    manifest = tool_manifest(capabilities=("rings a bell",))
    bench.offer(Package(name="nanobot-acme", manifest=manifest))

    found: dict[str, Any] = json.loads(
        bench.run("-c", SCRIPT, str(bench.home), json.dumps(REFUSED)).stdout.splitlines()[-1]
    )

    assert "is not the name of a distribution" in found["./x.whl"]
    assert "in the terminal only" in found["nanobot-acme @ file:///x"]
    assert "in the terminal only" in found["nanobot-acme.py"]
    assert "is not the name of a distribution" in found["--yes"]
    assert "no-such-thing" in found["no-such-thing"]
    plan = found["plan"]
    assert plan["changes"] == [{"name": "nanobot-acme", "before": "", "after": "1.0"}]
    assert plan["plugins"][0]["reaches"] == ["rings a bell", "gives the model tools"]
    assert "another plan" in found["other"]
    assert "acme" not in found["before"]
    assert "another installation is in progress" in found["second"]
    assert found["todo"] == []
    assert found["after"]["acme"] == "enabled"


def test_a_dry_run_changes_nothing_and_its_digest_agrees_to_it(bench: Bench) -> None:
    bench.offer(Package(name="nanobot-acme", code=TOOL.format(name="ask_acme")))
    before = bench.digests()

    shown = json.loads(
        bench.nanobot("plugins", "add", "nanobot-acme", "--dry-run", "--json").stdout
    )
    assert bench.digests() == before
    bench.nanobot("plugins", "add", "nanobot-acme", "--agree", shown["digest"])
    assert "acme\tenabled\t1.0" in bench.nanobot("plugins", "list").stdout
