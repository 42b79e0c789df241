"""``nanobot models``, and the check of keys by ``nanobot doctor --online``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nanobot_core.testing import OpenAIServer
from tests.integration.cli.conftest import CommandLine

pytest.importorskip("nanobot_openai")
pytestmark = pytest.mark.anyio

CONFIG = """\
agents: {defaults: {model: strong}}
models: {strong: openai/gpt-5-2025-08-07, lost: gemini/gemini-2.5-pro}
plugins: {policy: listed, enabled: [openai]}
providers: {%s}
"""


@asynccontextmanager
async def refusing(status: str = "401 No") -> AsyncIterator[str]:
    """Serve a base URL that answers with `status`, by default that it refuses the key."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\nlocation: http://localhost:9/\r\ncontent-length: 2"
        writer.write(f"{head}\r\n\r\n{{}}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def test_what_can_be_used_is_listed_without_a_network(bare: CommandLine) -> None:
    bare.configure(CONFIG % "openai: {api_key: key-of-the-test-7}")

    rows = json.loads(bare("models", "--json").stdout)
    table = bare("models", "5-mini").stdout.splitlines()

    assert [row["name"] for row in rows[:2]] == ["strong", "lost"]
    assert (rows[0]["model"], rows[0]["default"]) == ("openai/gpt-5-2025-08-07", True)
    assert (rows[0]["window_tokens"], rows[0]["input_usd"]) == (400_000, 1.25)
    assert rows[1]["problem"].startswith("set providers.gemini.api_key")
    assert {row["provider"] for row in rows[2:]} == {"openai"}
    assert table[1].split("\t")[:4] == ["openai/gpt-5-mini", "openai", "400k", "$0.25 / $2"]


async def test_services_are_asked_and_one_that_fails_keeps_its_data(bare: CommandLine) -> None:
    async with OpenAIServer(models=["gpt-5-mini", "house-1"]) as server, refusing() as refused:
        # The address of a vendor is replaced, so that facts of its models are known.
        sections = f"openai: {{api_key: key-of-the-test-7, api_base: '{server.url}'}}"
        bare.configure(CONFIG % f"{sections}, vllm: {{api_base: '{refused}'}}")
        former = bare.home / "models" / "vllm.json"
        former.parent.mkdir()
        former.write_text('[{"name": "house-0"}]')

        done = await asyncio.to_thread(bare, "models", "refresh", code=1)
        doctor = await asyncio.to_thread(bare, "doctor", "--online", "--json", code=1)

    rows = json.loads(bare("models", "--json").stdout)[2:]
    assert {row["name"]: row.get("window_tokens") for row in rows} == {
        "openai/gpt-5-mini": 400_000,
        "openai/house-1": None,
        "vllm/house-0": None,
    }
    assert done.stdout.splitlines()[1:][0].split("\t")[:2] == ["openai", "2"]
    assert server.requests == []
    found = {item["name"]: item for item in json.loads(doctor.stdout)}
    assert found["provider openai"]["message"] == "the service answers and offers 2 models"
    assert found["provider vllm"]["status"] == "error"
    assert found["provider vllm"]["remedy"] == (
        "set a valid key in providers.vllm.api_key or VLLM_API_KEY"
    )


async def test_a_list_that_cannot_be_had_or_stored_says_why(bare: CommandLine) -> None:
    async with OpenAIServer(models=["house-1"]) as server, refusing("302 Moved") as moved:
        bare.configure(
            CONFIG % f"vllm: {{api_base: '{server.url}'}}, ollama: {{api_base: '{moved}'}}"
        )
        (bare.home / "models" / "vllm.json").mkdir(parents=True)
        done = await asyncio.to_thread(bare, "models", "refresh", code=1)

    notes = dict(line.split("\t\t") for line in done.stdout.splitlines()[1:])
    assert notes["ollama"] == "HTTP 302: it answers from another address; correct api_base"
    assert notes["vllm"].startswith(f"cannot store its list in '{bare.home}/models/vllm.json'")
