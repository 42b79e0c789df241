"""Editors that break the protocol."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
LIMIT_S = 30.0


class Raw:
    """An editor without a library; every line that it gets must be JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()

    async def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            found: dict[str, Any] = json.loads(await self.process.stdout.readline())
        assert found["jsonrpc"] == "2.0"
        return found

    async def ask(self, method: str, params: object = None, number: object = 1) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        await self.send(json.dumps(message).encode())
        while "method" in (found := await self.next()):
            pass  # a notification
        assert found["id"] == number
        return found


@asynccontextmanager
async def raw(environ: dict[str, str]) -> AsyncIterator[Raw]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nanobot_core", "acp"),
        env=environ,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1_000_000,
    )
    try:
        yield Raw(process)
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(LIMIT_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_what_is_no_message_is_answered_and_the_connection_goes_on(
    environ: dict[str, str],
) -> None:
    async with raw(environ) as editor:
        for line, code, number in (
            (b"hello", -32700, None),
            (b"\xff\xfe", -32700, None),
            (b"[" * 100_000, -32700, None),
            (b"[]", -32600, None),
            (b"3", -32600, None),
            (b'{"id": [], "method": "initialize"}', -32600, None),
            (b'{"id": 7, "method": 3}', -32600, 7),
        ):
            await editor.send(line)
            found = await editor.next()
            assert (found["error"]["code"], found["id"]) == (code, number), line
        for line in (b"", b'{"id": 99, "result": 1}', b'{"id": "x", "error": "no"}', b"{}"):
            await editor.send(line)  # nothing to answer
        answer = await editor.ask("initialize", {"protocolVersion": 1})
        assert answer["result"]["protocolVersion"] == 1


async def test_a_line_of_more_than_50_megabytes_is_refused(environ: dict[str, str]) -> None:
    async with raw(environ) as editor:
        await editor.send(b'{"jsonrpc": "2.0", "id": 1, "x": "' + b"y" * (51 * 1024 * 1024) + b'"}')
        found = await editor.next()
        assert "longer than 52,428,800 bytes" in found["error"]["message"]
        assert (await editor.ask("initialize", {"protocolVersion": 1}))["result"]


async def test_wrong_requests_get_clear_errors(environ: dict[str, str], tmp_path: Path) -> None:
    async with raw(environ) as editor:
        assert (await editor.ask("session/new", {}))["error"]["message"] == (
            "the first request is initialize"
        )
        assert (await editor.ask("initialize", {"protocolVersion": 99}))["result"][
            "protocolVersion"
        ] == 1
        made = await editor.ask("session/new", {"cwd": str(tmp_path), "mcpServers": []})
        session = made["result"]["sessionId"]
        secret = "sk-a-secret-of-the-editor"
        for method, params, code, text in (
            ("session/invented", {}, -32601, "not support"),
            ("session/fork", {"sessionId": session, "cwd": "/"}, -32601, "not support"),
            ("session/new", {"mcpServers": []}, -32602, "cwd: Field required"),
            ("session/new", [secret], -32602, "params"),
            ("session/prompt", {"sessionId": session}, -32602, "prompt: Field required"),
            ("session/prompt", {"sessionId": {secret: 1}, "prompt": []}, -32602, "sessionId"),
            ("session/prompt", {"sessionId": session, "prompt": []}, -32602, "empty"),
            (
                "session/prompt",
                {"sessionId": session, "prompt": [{"type": "text", "text": "x" * 1_000_001}]},
                -32602,
                "at most 1,000,000 characters",
            ),
            (
                "session/prompt",
                {
                    "sessionId": session,
                    "prompt": [{"type": "image", "mimeType": "image/png", "data": "!"}],
                },
                -32602,
                "not base64",
            ),
            (
                "session/prompt",
                {
                    "sessionId": session,
                    "prompt": [{"type": "image", "mimeType": "image/svg+xml", "data": ""}],
                },
                -32602,
                "images are",
            ),
            (
                "session/prompt",
                {
                    "sessionId": session,
                    "prompt": [{"type": "audio", "mimeType": "audio/wav", "data": ""}],
                },
                -32602,
                "audio",
            ),
            ("session/list", {"cursor": "-1"}, -32602, "cursor"),
            ("session/list", {"cursor": "²"}, -32602, "cursor"),
        ):
            error = (await editor.ask(method, params))["error"]
            assert error["code"] == code, (method, params, error)
            assert text in error["message"]
            assert secret not in json.dumps(error)
        await editor.send(b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {}}')
        await editor.send(b'{"jsonrpc": "2.0", "method": "invented/notification"}')
        assert (await editor.ask("session/list", {}))["result"]["sessions"] == []


async def test_a_file_as_standard_input_is_an_error_that_says_so(
    home: Path, environ: dict[str, str]
) -> None:
    with (home / "config.yaml").open() as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nanobot_core", "acp"),
            env=environ,
            stdin=file,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(LIMIT_S):
            output, errors = await process.communicate()
    assert process.returncode == 1
    assert output == b""
    assert b"started by an editor" in errors
