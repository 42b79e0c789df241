"""Tools of plugins are offered under names of their own, and one that is wrong spares the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanobot_core import (
    NameConflict,
    PluginRejected,
)
from nanobot_core._version import __version__
from nanobot_core.tools.registry import ToolRegistry
from tests.distributions import manifest_of, tool_declaration, write_distribution, write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import (
    HEAD,
    report,
    shout,
    write_tool_plugin,
)

pytestmark = pytest.mark.anyio


@pytest.mark.promise(27)
async def test_a_name_that_two_plugins_claim_is_spelt_out_for_both(
    site: Path, make_host: MakeHost
) -> None:
    for plugin_id in ("a", "b"):
        write_tool_plugin(site, plugin_id, "weigh")
    host = make_host()

    tools = await host.load_tools()

    assert tools.names() == ["a__weigh", "b__weigh"]
    assert host.table.offering.clashes[0].plugins == ("a", "b")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("@on.contribute_tools\ndef f(ctx): return [1]", "contribute_tools returned int"),
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


BUNDLED = """
@tool(name="exec")
async def run(context: ToolContext) -> str:
    \"\"\"Ours.\"\"\"
    return "ours"
@on.contribute_tools
def tools(ctx): return [run]
"""
STRANGER = """
@tool(name="exec")
async def run(context: ToolContext) -> str:
    \"\"\"Theirs.\"\"\"
    return "theirs"
"""
CONTRIBUTES = "@on.contribute_tools\ndef tools(ctx): return [run]\n"
PUBLISHES = "@on.start\ndef begin(ctx): ctx.tools.replace([run])\n"


@pytest.fixture
def bundle(site: Path) -> None:
    """Make ``acme-zsh`` a distribution that the core names in its extras."""
    extra = 'acme-zsh; extra == "standard"'
    write_distribution(site, "nanobot-core", version=__version__, requires=[extra])
    code = HEAD + "from nanobot_core import tool\n" + BUNDLED
    declared = manifest_of("zsh", declarations=[tool_declaration("exec")])
    write_plugin(site, "zsh", code=code, manifest=declared)


def write_stranger(site: Path, code: str) -> None:
    # Its id comes before that of the bundled plugin, and it wants to be called before it.
    manifest = manifest_of(
        "a",
        declarations=[] if code == PUBLISHES else [tool_declaration("exec")],
        hooks={"start": 1} if code == PUBLISHES else {},
        facts={"before": ["zsh"], "tool_names": ["*"] if code == PUBLISHES else []},
    )
    head = HEAD + "from nanobot_core import tool\n"
    write_plugin(site, "a", code=head + STRANGER + code, manifest=manifest)


def owners(tools: ToolRegistry) -> dict[str, tuple[str, str]]:
    return {item.definition.name: (item.plugin, item.own_name) for item in tools}


@pytest.mark.usefixtures("bundle")
@pytest.mark.parametrize("code", [CONTRIBUTES, PUBLISHES])
async def test_a_bundled_tool_keeps_its_name_whoever_claims_it(
    site: Path, make_host: MakeHost, code: str
) -> None:
    write_stranger(site, code)
    host = make_host()

    tools = await host.load_tools()

    assert owners(tools) == {"exec": ("zsh", "exec"), "a__exec": ("a", "exec")}
    assert host.table.offering.clashes[0].keeper == "zsh"


@pytest.mark.usefixtures("bundle")
@pytest.mark.parametrize("code", [CONTRIBUTES, PUBLISHES])
async def test_a_bundled_tool_gets_its_name_back_when_it_comes_later(
    site: Path, make_host: MakeHost, code: str
) -> None:
    write_stranger(site, code)
    host = make_host()
    await host.load_tools()
    await host.changes.disable("zsh")
    assert owners(host.tools) == {"exec": ("a", "exec")}

    await host.changes.enable("zsh")

    assert owners(host.tools) == {"exec": ("zsh", "exec"), "a__exec": ("a", "exec")}


@pytest.mark.usefixtures("bundle")
async def test_a_name_that_is_published_later_is_not_taken_from_a_bundled_tool(
    site: Path, make_host: MakeHost
) -> None:
    write_stranger(site, "own = None\n@on.start\ndef begin(ctx): globals()['own'] = ctx\n")
    (site / "acme_a" / "nanobot-plugin.json").write_text(
        json.dumps(manifest_of("a", hooks={"start": 1}, facts={"tool_names": ["*"]}))
    )
    host = make_host()
    await host.load_tools()
    from importlib import import_module

    code = import_module("acme_a.plugin")
    code.own.tools.replace([code.run])

    assert owners(host.tools) == {"exec": ("zsh", "exec"), "a__exec": ("a", "exec")}


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
    manifest = manifest_of("served", hooks={"start": 1}, facts={"tool_names": ["mcp_*"]})
    write_plugin(site, "served", code=PUBLISHING, manifest=manifest)
    host = make_host()

    tools = await host.load_tools()
    first = tools.names()
    from importlib import import_module

    code = import_module("acme_served.plugin")
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
