"""``nanobot providers login`` and ``logout``, and a turn between them, in processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nanobot_core.testing import Reply
from nanobot_openai.testing import ChatGPTStandIn, CodexServer, GitHubStandIn

pytestmark = pytest.mark.anyio
LIMIT_S = 30.0


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def redirect_of(page: str) -> str:
    """Allow the access; return the address that the browser ends at."""
    try:
        urllib.request.build_opener(NoRedirect).open(page, timeout=5)
    except urllib.error.HTTPError as error:
        with error:
            return str(error.headers["Location"])
    raise AssertionError(page)


class Commands:
    """``nanobot`` with a home and a configuration of its own."""

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        self.home = home
        home.mkdir(mode=0o700)
        (home / "config.json").write_text(json.dumps(settings))
        (home / "config.json").chmod(0o600)

    async def start(self, *words: str, stdin: int = asyncio.subprocess.DEVNULL) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nanobot_core", *words),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "NANOBOT_HOME": str(self.home)},
        )

    async def run(self, *words: str) -> str:
        process = await self.start(*words)
        output, errors = await asyncio.wait_for(process.communicate(), LIMIT_S)
        assert process.returncode == 0, errors.decode()
        return str(output.decode().strip())


async def line_with(stream: asyncio.StreamReader | None, text: str) -> str:
    seen = []
    assert stream is not None
    async with asyncio.timeout(LIMIT_S):
        while line := (await stream.readline()).decode():
            seen.append(line)
            if text in line:
                return line.strip()
    raise AssertionError(seen)


async def test_a_person_signs_in_asks_a_question_and_signs_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ChatGPTStandIn((port,)) as auth:
        async with CodexServer(default=Reply(text="good day")) as server:
            server.auth = auth
            section = {"auth_base": auth.url, "callback_ports": [port], "api_base": server.url}
            nanobot = Commands(
                tmp_path / "home",
                {
                    "agents": {"defaults": {"model": "openai-codex/gpt-5.3-codex"}},
                    "providers": {"openai_codex": section},
                    "plugins": {"policy": "listed", "enabled": ["openai"]},
                },
            )
            main, terminal = os.openpty()
            login = await nanobot.start("providers", "login", "openai-codex", stdin=terminal)
            page = await line_with(login.stderr, "/oauth/authorize?")
            os.write(main, b"who?\n" + redirect_of(page).encode() + b"\n")
            output, errors = await asyncio.wait_for(login.communicate(), LIMIT_S)
            os.close(main)
            os.close(terminal)
            assert output == b"signed in as me@example.org\n", errors
            assert b"paste all of it" in errors

            listed, answer = await asyncio.gather(
                nanobot.run("providers", "list"), nanobot.run("agent", "-m", "hello")
            )
            assert "openai_codex\topenai\tyes, signed in as me@example.org" in listed
            assert answer == "good day"
            assert await nanobot.run("providers", "logout", "openai_codex") == "signed out"
            assert auth.revoked == [auth.refresh]

    kept = [path.read_bytes() for path in nanobot.home.rglob("*") if path.is_file()]
    assert not any(auth.access.encode() in data or b"refresh-" in data for data in kept)


async def test_ctrl_c_ends_a_sign_in_without_a_trace(tmp_path: Path) -> None:
    with GitHubStandIn() as github:
        section = {"github_base": github.url, "github_api": github.url}
        settings = {
            "providers": {"github_copilot": section},
            "plugins": {"policy": "listed", "enabled": ["openai"]},
        }
        nanobot = Commands(tmp_path / "home", settings)
        login = await nanobot.start("providers", "login", "github-copilot")
        await line_with(login.stderr, "WDJB-MJHT")
        await line_with(login.stderr, "Waiting for 15 minutes at most")
        login.send_signal(signal.SIGINT)
        _, errors = await asyncio.wait_for(login.communicate(), LIMIT_S)

    assert login.returncode == 130
    assert b"Traceback" not in errors
    assert not list(nanobot.home.rglob("github_copilot.json"))
