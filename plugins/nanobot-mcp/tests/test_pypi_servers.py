"""The reference servers of PyPI, in the environment of the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Connect

pytestmark = pytest.mark.anyio


def module(name: str, *args: str, **settings: Any) -> dict[str, Any]:
    pytest.importorskip(name, reason=f"{name} is not installed; it is in the group 'test'")
    return {"command": sys.executable, "args": ["-m", name, *args], **settings}


async def test_time_is_reported_and_converted(connect: Connect) -> None:
    async with connect({"time": module("mcp_server_time")}) as bench:
        assert bench.names == ["mcp_time_convert_time", "mcp_time_get_current_time"]
        told = await bench.text("mcp_time_get_current_time", timezone="Europe/Berlin")
        assert '"timezone": "Europe/Berlin"' in told
        converted = await bench.text(
            "mcp_time_convert_time",
            source_timezone="UTC",
            time="12:00",
            target_timezone="Asia/Tokyo",
        )
        assert "21:00" in converted
        wrong = await bench.call("mcp_time_get_current_time", timezone="Mars/Olympus")
        assert wrong.is_error


def make_repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    for command in (
        ["git", "init", "-q", str(folder)],
        ["git", "-C", str(folder), "config", "user.email", "a@example.test"],
        ["git", "-C", str(folder), "config", "user.name", "A"],
    ):
        subprocess.run(command, check=True)
    (folder / "a.txt").write_text("words\n")
    return folder


async def test_a_repository_is_read_and_committed_to(connect: Connect, tmp_path: Path) -> None:
    folder = make_repository(tmp_path)
    server = module("mcp_server_git", "--repository", str(folder))
    async with connect({"git": server}) as bench:
        assert len(bench.names) == 12
        repository = str(folder)
        assert "a.txt" in await bench.text("mcp_git_git_status", repo_path=repository)
        await bench.call("mcp_git_git_add", repo_path=repository, files=["a.txt"])
        await bench.call("mcp_git_git_commit", repo_path=repository, message="Say words")
        assert "Say words" in await bench.text("mcp_git_git_log", repo_path=repository)


async def test_a_page_is_fetched_by_tool_and_by_prompt(connect: Connect, page: str) -> None:
    server = module("mcp_server_fetch", "--allow-private-ips")
    async with connect({"fetch": server}) as bench:
        assert bench.names == ["mcp_fetch_fetch", "mcp_fetch_prompt_fetch"]
        assert "Some words" in await bench.text("mcp_fetch_fetch", url=page, raw=True)
        assert "Some words" in await bench.text("mcp_fetch_prompt_fetch", url=page)
