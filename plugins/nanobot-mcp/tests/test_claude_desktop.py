"""A block copied from Claude Desktop's documentation, through the command line.

The block is in the configuration as the servers' own documentation prints it, with real paths
in place of the sample ones, and with the argument that lets ``fetch`` read a page of this machine.
``npx`` is the machine's, and finds the servers in the ``node_modules`` of the workspace instead of
fetching them at each start. ``uvx`` would fetch them too, so a program of this name runs them from
the environment of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

for _needed in ("nanobot_offline", "mcp_server_time", "mcp_server_git", "mcp_server_fetch"):
    if find_spec(_needed) is None:
        pytest.skip(f"{_needed} is not installed", allow_module_level=True)

COMMAND_LIMIT_S = 100

# The first test waits for npm up to 300 s, and each command starts five servers.
pytestmark = pytest.mark.timeout(300 + 2 * COMMAND_LIMIT_S)

BLOCK = """\
{
  "mcpServers": {
    "everything": {
      "command": "npx",
      "args": [
        "-y",
        "@modelcontextprotocol/server-everything"
      ]
    },
    "fetch": {
      "command": "uvx",
      "args": ["mcp-server-fetch", "--allow-private-ips"]
    },
    "filesystem": {
      "command": "npx",
      "args": [
        "-y",
        "@modelcontextprotocol/server-filesystem",
        "/Users/username/Desktop",
        "/path/to/other/allowed/dir"
      ]
    },
    "git": {
      "command": "uvx",
      "args": ["mcp-server-git", "--repository", "path/to/git/repo"]
    },
    "time": {
      "command": "uvx",
      "args": ["mcp-server-time"]
    }
  }
}
"""
"""As the READMEs of the servers print it under "Usage with Claude Desktop", in one object."""

UVX = """\
#!/bin/sh
module=$(printf %s "$1" | tr - _)
shift
exec '{python}' -m "$module" "$@"
"""


class Desk:
    """A user's folder, and ``nanobot`` in it.

    Attributes:
        desktop: the folder that the server ``filesystem`` may use.
        repository: the one of the server ``git``.
    """

    def __init__(self, folder: Path, node_modules: Path) -> None:
        home = folder / "home"
        home.mkdir()
        self.desktop: Path = folder / "Desktop"
        other = folder / "other"
        workspace = folder / "workspace"
        for path in (self.desktop, other, workspace):
            path.mkdir()
        (self.desktop / "note.txt").write_text("words on the desktop")
        (workspace / "node_modules").symlink_to(node_modules)
        self.repository: Path = folder / "repository"
        subprocess.run(["git", "init", "-q", str(self.repository)], check=True)
        (self.repository / "a.txt").write_text("words\n")
        programs = folder / "bin"
        programs.mkdir()
        uvx = programs / "uvx"
        uvx.write_text(UVX.format(python=sys.executable))
        uvx.chmod(0o700)
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "NANOBOT_HOME": str(home),
            "NANOBOT_AGENTS__DEFAULTS__WORKSPACE": str(workspace),
            "NANOBOT_AGENTS__DEFAULTS__PROVIDER": "offline",
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
        }
        block = (
            BLOCK.replace("/Users/username/Desktop", str(self.desktop))
            .replace("/path/to/other/allowed/dir", str(other))
            .replace("path/to/git/repo", str(self.repository))
        )
        config = home / "config.json"
        config.write_text(block, "utf-8")
        config.chmod(0o600)

    def nanobot(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "nanobot_core", *words],
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def desk(tmp_path: Path, node_modules: Path) -> Desk:
    return Desk(tmp_path, node_modules)


@pytest.mark.long
def test_the_servers_are_connected_and_a_turn_calls_a_tool_of_each(desk: Desk, page: str) -> None:
    # Each command starts all servers, so there are only two.
    listed = json.loads(desk.nanobot("mcp", "list", "--json"))
    assert {row["server"]: (row["type"], row["state"]) for row in listed} == dict.fromkeys(
        ("everything", "fetch", "filesystem", "git", "time"), ("stdio", "connected")
    )
    assert all(row["tools"] for row in listed)
    calls = {
        "mcp_everything_echo": {"message": "hello"},
        "mcp_filesystem_read_text_file": {"path": str(desk.desktop / "note.txt")},
        "mcp_git_git_status": {"repo_path": str(desk.repository)},
        "mcp_time_get_current_time": {"timezone": "Asia/Tokyo"},
        "mcp_fetch_fetch": {"url": page},
    }
    message = " then ".join(f"{name} {json.dumps(given)}" for name, given in calls.items())

    told = desk.nanobot("agent", "-m", message)

    assert "Echo: hello" in told
    assert "words on the desktop" in told
    assert "a.txt" in told
    assert "Asia/Tokyo" in told
    assert "Some words to read" in told
