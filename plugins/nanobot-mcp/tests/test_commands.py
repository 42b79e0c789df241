from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent
RAW = {"command": sys.executable, "args": [str(HERE / "raw_server.py")]}


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "NANOBOT_HOME": str(home),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "nanobot_core", *words],
        capture_output=True,
        text=True,
        timeout=50,
        env=environment,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    servers = {
        "raw": RAW,
        "gone": {"command": "no-such-program"},
        "off": {"command": "no-such-program", "disabled": True},
    }
    settings = {"tools": {"mcp_servers": servers}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    return tmp_path


def test_list_reports_each_server_its_result(home: Path) -> None:
    rows = {row["server"]: row for row in json.loads(run(home, "mcp", "list", "--json").stdout)}

    assert set(rows) == {"raw", "gone"}
    assert rows["raw"] == {
        "server": "raw",
        "type": "stdio",
        "state": "connected",
        "tools": 13,
        "resources": 0,
        "prompts": 0,
        "problem": "",
    }
    assert rows["gone"]["state"] == "failed"
    assert "no-such-program" in rows["gone"]["problem"]


def test_a_tool_is_explained_by_its_server_plugin_and_version(home: Path) -> None:
    def explained(name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(run(home, "explain", "tool", name, "--json").stdout)
        return found

    assert explained("mcp_raw_connect")["comes_from"] == "MCP server 'raw'"
    assert str(explained("mcp_raw_echo")["comes_from"]).startswith("unknown")
    run(home, "mcp", "tools", "raw")
    echo = explained("mcp_raw_echo")
    assert echo["comes_from"] == "MCP server 'raw'"
    assert echo["provided_by"] == [f"mcp@{version('nanobot-mcp')}: enabled, policy 'direct'"]


def test_tools_are_listed_and_what_failed_is_reported(home: Path) -> None:
    found = run(home, "mcp", "tools", "raw")
    assert found.returncode == 0
    assert "mcp_raw_echo\tDoes echo." in found.stdout.splitlines()

    every = run(home, "mcp", "tools", "--json")
    assert every.returncode == 1
    assert "'gone': 'no-such-program' does not exist" in every.stderr
    tool = next(item for item in json.loads(every.stdout) if item["name"] == "mcp_raw_echo")
    assert tool["original_name"] == "echo"
    assert tool["parameters"]["properties"] == {"text": {"type": "string"}}


def test_a_call_prints_the_answer(home: Path) -> None:
    called = run(home, "mcp", "call", "mcp_raw_echo", '{"text": "hello"}')
    assert (called.returncode, called.stdout) == (0, "hello\n")

    as_json = run(home, "mcp", "call", "mcp_raw_echo", '{"text": "hello"}', "--json")
    assert json.loads(as_json.stdout)["text"] == "hello"


@pytest.mark.parametrize(
    ("words", "code", "finding"),
    [
        (("call", "mcp_raw_echo", "hello"), 2, "must be a JSON object"),
        (("call", "mcp_raw_ecko"), 1, "mcp_raw_echo"),
        (("call", "mcp_raw_echo", '{"text": [1]}'), 1, "text"),
        (("tools", "rax"), 1, "configured and enabled: gone, raw"),
        (("login", "raw"), 1, "does not need a login"),
    ],
)
def test_what_cannot_be_done_is_reported(
    home: Path, words: tuple[str, ...], code: int, finding: str
) -> None:
    done = run(home, "mcp", *words)

    assert done.returncode == code
    assert finding in done.stderr
    assert "Traceback" not in done.stderr


def test_without_servers_the_list_is_said_to_be_empty(tmp_path: Path) -> None:
    listed = run(tmp_path, "mcp", "list")

    assert listed.returncode == 0
    assert "tools.mcp_servers" in listed.stderr


def test_a_bad_server_is_reported_and_leaves_the_others_alone(home: Path) -> None:
    """The original saves servers with empty keys, and one such entry disabled all servers."""
    servers = {"raw": {**RAW, "url": ""}, "a": {"comand": "npx"}, "b": {"command": "", "url": ""}}
    settings = {"tools": {"mcp_servers": servers}}
    (home / "config.yaml").write_text(yaml.safe_dump(settings), "utf-8")

    listed = run(home, "mcp", "list", "--json")
    checked = run(home, "config", "check")
    tools = run(home, "mcp", "tools", "a")

    rows = {row["server"]: row for row in json.loads(listed.stdout)}
    assert rows["raw"]["state"] == "connected"
    assert "did you mean 'command'" in rows["a"]["problem"]
    assert "either 'command'" in rows["b"]["problem"]
    assert "MCP server 'a' cannot be used" in tools.stderr
    assert tools.returncode == 1
    assert checked.returncode == 1
    assert "tools.mcp_servers.a" in checked.stdout + checked.stderr
