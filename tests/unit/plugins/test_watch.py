"""Code that blocks the loop is named while it blocks, with file and line."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from nanobot_core.hooks.compilation import Registrant
from nanobot_core.plugins import health
from nanobot_core.plugins.health import LoopBlock, LoopWatch, code_place
from tests.distributions import manifest_of, write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import READY

pytestmark = pytest.mark.anyio
BLOCKING = """
import threading
from nanobot_core import on
told = threading.Event()

@on.before_turn
def ready(event):
    # Until the watch has told, so that no time has to be guessed.
    told.wait(5)
"""


@pytest.mark.promise(11)
async def test_a_plugin_that_blocks_the_loop_is_named_with_file_and_line(
    site: Path, make_host: MakeHost, warnings: list[str]
) -> None:
    package = write_plugin(
        site, "lazy", code=BLOCKING, manifest=manifest_of("lazy", hooks={"before_turn": 1})
    )
    host = make_host()
    await host.start()
    from importlib import import_module

    from loguru import logger

    told = import_module("acme_lazy.plugin").told
    sink = logger.add(lambda text: told.set() if "blocks the event loop" in text else None)
    watching = asyncio.get_running_loop().create_task(host.watch_loop())
    await asyncio.sleep(0)

    await host.hooks.before_turn(READY)
    await asyncio.sleep(0)
    watching.cancel()
    logger.remove(sink)

    place = f"{package / 'plugin.py'}:9"
    assert any("plugin 'lazy'" in each and place in each for each in warnings)
    (condition,) = host.reports()
    assert condition.state == "degraded"
    assert place in condition.reason
    assert "thread" in condition.remedy


async def watched(places: dict[str, str]) -> LoopBlock:
    """Block the loop here until it is reported, and return the report."""
    found: list[LoopBlock] = []
    told = threading.Event()

    def on_block(block: LoopBlock) -> None:
        found.append(block)
        told.set()

    task = asyncio.get_running_loop().create_task(LoopWatch(lambda: places, on_block).run())
    await asyncio.sleep(0)
    told.wait(5)
    task.cancel()
    return found[0]


async def test_a_long_block_is_told_again_with_the_hook_that_blocks(
    site: Path, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanobot_core.plugins.health.LONG_AFTER_S", 0.5)
    package = write_plugin(
        site, "lazy", code=BLOCKING, manifest=manifest_of("lazy", hooks={"before_turn": 1})
    )
    host = make_host()
    await host.start()
    from importlib import import_module

    told = import_module("acme_lazy.plugin").told
    found: list[LoopBlock] = []

    def on_block(block: LoopBlock) -> None:
        found.append(block)
        if block.is_long:
            told.set()

    places = {"lazy": str(package)}
    watching = asyncio.get_running_loop().create_task(LoopWatch(lambda: places, on_block).run())
    await asyncio.sleep(0)
    await host.hooks.before_turn(READY)
    watching.cancel()

    assert [(block.is_long, block.hook) for block in found if not block.is_over] == [
        (False, "before_turn"),
        (True, "before_turn"),
    ]


async def test_a_block_outside_of_all_plugins_is_told_without_a_name() -> None:
    block = await watched({"other": str(Path(__file__).with_suffix(""))})

    assert block.plugin == ""
    assert block.blocked_s > 0.25


async def test_a_single_file_is_a_place_too() -> None:
    block = await watched({"this": __file__})

    assert (block.plugin, block.place.rpartition(":")[0]) == ("this", __file__)


def test_the_place_of_a_plugin_is_its_package_or_its_file(site: Path) -> None:
    from importlib import import_module

    package = write_plugin(site, "lazy", code="class Plugin: ...")
    (site / "acme_single.py").write_text("")
    module = import_module("acme_lazy.plugin")

    assert code_place(Registrant("a", "", module)) == str(package)
    assert code_place(Registrant("a", "", module.Plugin())) == str(package)
    single = import_module("acme_single")
    assert code_place(Registrant("a", "", single)) == str(site / "acme_single.py")
    of_the_core = LoopBlock(plugin="", place="", blocked_s=1)
    assert code_place(Registrant("a", "", of_the_core)) == health.__file__
