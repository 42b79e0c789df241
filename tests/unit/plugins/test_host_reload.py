"""The code of a plugin is exchanged, or it is said why that takes a restart."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nanobot_core.messages import JsonValue
from nanobot_core.plugins.loader import RestartRequired, why_not_exchangeable
from tests.distributions import manifest_of, write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import (
    EAR,
    HEAD,
    READY,
    listening,
    log_of,
    reconfigured,
    report,
    write_ear,
    write_tool_plugin,
)

pytestmark = pytest.mark.anyio


async def test_code_that_others_use_takes_a_restart(site: Path, make_host: MakeHost) -> None:
    write_ear(site)
    user = HEAD + "import acme_ear.plugin as ear\n@on.before_turn\ndef ready(event): ...\n"
    write_plugin(site, "user", code=user, manifest=listening("user"))
    host = make_host()
    await host.start()

    with pytest.raises(RestartRequired, match=r"'acme_user.plugin' of another active plugin"):
        await host.changes.reload("ear")

    found = report(host, "ear")
    assert (found.state, bool(found.remedy)) == ("restart-required", True)
    assert log_of("ear") == ["start ear"]


async def test_other_requirements_take_a_restart(site: Path, make_host: MakeHost) -> None:
    write_ear(site)
    host = make_host()
    await host.start()

    metadata = site / "acme_ear-1.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text() + "Requires-Dist: loguru>=0.7\n")

    with pytest.raises(RestartRequired, match="requires other packages"):
        await host.changes.reload("ear")


def test_compiled_code_is_not_exchangeable() -> None:
    import pydantic_core  # noqa: F401 - it is loaded

    assert "compiled code" in why_not_exchangeable({"pydantic_core"}, ())


async def test_a_local_file_is_reloaded(site: Path, make_host: MakeHost) -> None:
    file = site / "mine.py"
    file.write_text(EAR)
    host = make_host({"plugins.local": [str(file)]})
    await host.start()

    file.write_text(EAR.replace('log.append("ready")', 'log.append("newer")'))
    await host.changes.reload("mine")
    await host.hooks.before_turn(READY)

    assert sys.modules["nanobot_local_mine"].log == ["start mine", "newer"]


LAZY = (
    HEAD
    + """
@on.contribute_tools
def tools(ctx): return [LazyTool("weigh", "acme_scales.tools:WeighTool")]
"""
)


WEIGH = """
from nanobot_core import Tool
class WeighTool(Tool):
    name = "weigh"
    description = "weigh it"
    parameters = {"type": "object", "properties": {}}
    edition = 1
    def __init__(self, ctx): self.ctx = ctx
    async def execute(self, context, arguments): return "1 kg"
"""


async def test_a_tool_that_was_never_loaded_is_that_of_the_new_instance(
    site: Path, make_host: MakeHost
) -> None:
    write_tool_plugin(site, "scales", "weigh")
    package = site / "acme_scales"
    (package / "plugin.py").write_text(LAZY)
    (package / "tools.py").write_text(WEIGH)
    host = make_host()

    async with host.snapshot() as generation:
        (package / "tools.py").write_text(WEIGH.replace("edition = 1", "edition = 2"))
        await host.changes.reload("scales")
        entry = generation.tools.get("weigh")
        assert entry is not None
        tool = await entry.tool()

    assert tool.edition == 2  # type: ignore[attr-defined]  # written above
    assert tool.ctx is await host.context_for("scales")  # type: ignore[attr-defined]  # likewise


async def test_tools_of_plugins_that_did_not_change_stay_the_same_objects(
    site: Path, make_host: MakeHost
) -> None:
    write_tool_plugin(site, "scales", "weigh")
    write_ear(site)
    host = make_host()
    await host.start()
    tools = await host.load_tools()
    before = tools.get("weigh")

    await host.changes.disable("ear")

    assert tools.get("weigh") is before


async def test_what_holds_the_histories_takes_a_restart(
    site: Path, make_host: MakeHost, home: Path
) -> None:
    store = {"kind": "stores", "name": "vault", "summary": "", "detail": {}}
    write_plugin(
        site, "vault", code=HEAD + "@on.contribute_stores\ndef stores(ctx): return []\n",
        manifest=manifest_of("vault", declarations=[store]),
    )  # fmt: skip
    settings: dict[str, JsonValue] = {"agents.defaults.session_store": "vault"}
    host = make_host(settings)
    await host.activate("vault")

    for change in (host.changes.reload("vault"), host.changes.disable("vault")):
        with pytest.raises(RestartRequired, match="its stores 'vault' is in use"):
            await change
    done = await reconfigured(host, home, settings | {"plugins.disabled": ["vault"]})

    assert "in use" in done.failed["vault"]
    assert host.table.labels() == ("vault@1.0",)
