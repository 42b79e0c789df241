"""The plugin in a host."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from nanobot_core import Nanobot, examine_plugin, manifest_to_json
from nanobot_core.testing import FakeClock, call_in, output_text
from nanobot_mcp import plugin

if TYPE_CHECKING:
    from conftest import Connect, Running

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "src" / "nanobot_mcp"
RAW = {"command": sys.executable, "args": [str(HERE / "raw_server.py")]}
PATIENT = {"startup_grace_s": 20}
"""The first turn waits for servers that are new."""


def write_config(folder: Path, **sections: Any) -> Path:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(sections), "utf-8")
    return file


async def call(bot: Nanobot, name: str, **given: str) -> str:
    """Do what a turn does with tools, without a model: load them and call one."""
    entry = (await bot.plugins.load_tools()).get(name)
    assert entry is not None
    context = call_in(Path.cwd())
    async with asyncio.timeout(40):
        return output_text(await (await entry.tool()).execute(context, dict(given)))


def test_the_manifest_reports_what_the_code_does() -> None:
    stored = json.loads((PACKAGE / "nanobot-plugin.json").read_text("utf-8"))

    assert stored == json.loads(json.dumps(manifest_to_json(examine_plugin("mcp"))))


def test_importing_the_entry_module_loads_neither_sdk_nor_settings() -> None:
    program = (
        "import sys, json; import nanobot_mcp.plugin; "
        "print(json.dumps([m for m in sys.modules if m.partition('.')[0] in "
        "('nanobot_mcp', 'pydantic', 'mcp', 'mcp_types', 'httpx2', 'anyio')]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    ).stdout

    assert sorted(json.loads(output)) == ["nanobot_mcp", "nanobot_mcp.plugin"]


COUNT = """\
import asyncio, json, sys
from pathlib import Path
from nanobot_core import Nanobot

async def main():
    async with Nanobot.from_config(Path(sys.argv[1]), home=Path(sys.argv[2])) as bot:
        before = sorted(name for name in sys.modules if name.startswith("nanobot_mcp"))
        await bot.plugins.load_tools()
        print(json.dumps([before, sorted(m for m in sys.modules if m.startswith("nanobot_mcp")),
                          [m for m in ("mcp", "mcp_types", "httpx2") if m in sys.modules]]))

asyncio.run(main())
"""


def test_without_servers_the_sdk_is_not_imported_and_nothing_is_written(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    output = subprocess.run(
        [sys.executable, "-c", COUNT, str(config), str(tmp_path)],
        capture_output=True,
        check=True,
        timeout=50,
    ).stdout
    before, after, sdk = json.loads(output)

    assert before == [], "nothing is loaded before the first turn"
    assert "nanobot_mcp.plugin" in after, "the turn could have used tools"
    assert sdk == []
    assert "nanobot_mcp.connection" not in after
    assert not (tmp_path / "plugins" / "mcp" / "offer_cache").exists()


@pytest.mark.anyio
async def test_with_a_known_server_the_sdk_is_not_imported_before_a_call(tmp_path: Path) -> None:
    config = write_config(tmp_path, tools={"mcp": PATIENT, "mcp_servers": {"raw": RAW}})
    async with Nanobot.from_config(config, home=tmp_path) as bot:
        assert await call(bot, "mcp_raw_echo", text="ping") == "ping"
    output = await asyncio.to_thread(
        subprocess.check_output, [sys.executable, "-c", COUNT, str(config), str(tmp_path)]
    )
    _, after, sdk = json.loads(output)

    assert "nanobot_mcp.hub" in after
    assert sdk == []


BLOCK = """
{
  "mcpServers": {
    "raw": {
      "command": "PYTHON",
      "args": ["SCRIPT"],
      "env": {
        "BRAVE_API_KEY": "YOUR_API_KEY_HERE"
      }
    },
    "switched-off": {"command": "no-such-program", "disabled": true}
  }
}
"""


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["json", "yaml"])
async def test_a_block_of_claude_desktop_works_unchanged(
    tmp_path: Path, kind: str, running: Running
) -> None:
    block = BLOCK.replace("PYTHON", sys.executable).replace("SCRIPT", str(HERE / "raw_server.py"))
    file = tmp_path / f"config.{kind}"
    # JSON is YAML, so the same block is in both.
    file.write_text(block, "utf-8")

    async with Nanobot.from_config(file, home=tmp_path) as bot:
        await bot.plugins.load_tools()
        assert running() == 0, "no server before the first turn"
        await call(bot, "mcp_raw_connect")
        assert "BRAVE_API_KEY" in await call(bot, "mcp_raw_environment")
        assert await call(bot, "mcp_raw_echo", text="ping") == "ping"
        assert "mcp_raw_echo" in bot.tools
        assert "mcp_raw_connect" not in bot.tools
    assert running() == 0


@pytest.mark.anyio
async def test_the_first_turn_has_the_tools_of_a_new_server_where_the_owner_has_it_wait(
    tmp_path: Path,
) -> None:
    pytest.importorskip("nanobot_offline", reason="a turn without a model needs nanobot-offline")
    config = write_config(
        tmp_path,
        agents={"defaults": {"provider": "offline"}},
        tools={"mcp": PATIENT, "mcp_servers": {"raw": RAW}},
    )

    async with Nanobot.from_config(config, home=tmp_path) as bot:
        outcome = await bot.run('mcp_raw_echo {"text": "ping"}')

    assert outcome.tools_used == ("mcp_raw_echo",)
    assert "ping" in str(outcome.reply)


@pytest.mark.anyio
async def test_tools_of_the_last_time_are_there_at_once_while_the_server_is_away(
    tmp_path: Path,
) -> None:
    flag = tmp_path / "flag"
    late = {**RAW, "args": [*RAW["args"], "late", str(flag)]}
    config = write_config(tmp_path, tools={"mcp": PATIENT, "mcp_servers": {"raw": late}})
    flag.touch()
    async with Nanobot.from_config(config, home=tmp_path) as bot:
        await bot.plugins.load_tools()
        first = json.dumps([item.to_schema() for item in bot.tools.get_definitions()])
    flag.unlink()

    async with Nanobot.from_config(config, home=tmp_path) as bot:
        await bot.plugins.load_tools()
        assert json.dumps([item.to_schema() for item in bot.tools.get_definitions()]) == first
        flag.touch()
        assert await call(bot, "mcp_raw_echo", text="pong") == "pong"
        assert json.dumps([item.to_schema() for item in bot.tools.get_definitions()]) == first


@pytest.mark.anyio
async def test_a_server_that_hangs_does_not_hold_up_the_others_or_the_turn(
    tmp_path: Path, running: Running
) -> None:
    servers = {"raw": RAW, "deaf": {**RAW, "args": [*RAW["args"], "deaf"]}}
    config = write_config(tmp_path, tools={"mcp": {"startup_grace_s": 3}, "mcp_servers": servers})

    async with Nanobot.from_config(config, home=tmp_path) as bot:
        assert await call(bot, "mcp_raw_echo", text="here") == "here"
    assert running() == 0


@pytest.mark.anyio
async def test_two_applications_have_servers_of_their_own(tmp_path: Path, running: Running) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_config(tmp_path / name, tools={"mcp": PATIENT, "mcp_servers": {name: RAW}})
    async with (
        Nanobot.from_config(tmp_path / "a" / "config.yaml", home=tmp_path / "a") as first,
        Nanobot.from_config(tmp_path / "b" / "config.yaml", home=tmp_path / "b") as second,
    ):
        await first.plugins.load_tools()
        await second.plugins.load_tools()

        assert "mcp_a_echo" in first.tools
        assert "mcp_a_echo" not in second.tools
        assert "mcp_b_echo" in second.tools
        assert running() == 2


@pytest.mark.anyio
async def test_a_name_in_both_sections_is_that_of_our_own(connect: Connect) -> None:
    copied = {"raw": {"command": "no-such-program"}, "other": {"command": "no-such-program"}}
    async with connect({"raw": RAW}, copied=copied) as bench:
        assert bench.hub.connection("raw").state == "connected"
        assert bench.hub.connection("other").failure


@pytest.mark.anyio
async def test_offers_are_published_once_for_each_change(connect: Connect) -> None:
    async with connect({"a": RAW, "b": RAW}) as bench:
        pass
    async with connect({"a": RAW, "b": RAW}) as bench:
        for name in ("a", "b"):
            assert await bench.text(f"mcp_{name}_echo", text=name) == name
        assert len(bench.context.tools.published) == 1


@pytest.mark.anyio
async def test_a_server_that_failed_is_waited_for_once_only(connect: Connect) -> None:
    async with connect({"gone": {"command": "no-such-program"}}, clock=FakeClock()) as bench:
        assert bench.hub.connection("gone").state == "waiting"
        # What the host does when a plugin is added later; the clock stands still.
        async with asyncio.timeout(5):
            await asyncio.to_thread(bench.hub.begin)


def test_settings_stand_where_they_are_said_to() -> None:
    assert [section.path for section in plugin.contribute_settings()] == [
        "tools.mcp",
        "tools.mcp_servers",
        "mcp_servers",
    ]
