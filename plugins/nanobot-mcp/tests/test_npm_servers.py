"""The reference servers of npm: everything that server-everything can do, and the file system."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nanobot_core import ImageBlock, ToolError

if TYPE_CHECKING:
    from conftest import Bench, Connect

START_LIMIT_S = 30

# The first test waits for npm up to 300 s.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300 + 60)]


@pytest.fixture(scope="session")
def modules(node_modules: Path) -> Path:
    """The folder of the reference servers."""
    return node_modules / "@modelcontextprotocol"


Everything = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def everything(modules: Path) -> Iterator[Everything]:
    """The settings of server-everything, running where it is remote."""
    script = str(modules / "server-everything" / "dist" / "index.js")
    children: list[subprocess.Popen[bytes]] = []
    ports: dict[str, int] = {}

    def settings(kind: str) -> dict[str, Any]:
        if kind == "stdio":
            return {"command": "node", "args": [script, "stdio"]}
        if kind not in ports:
            ports[kind] = _free_port()
            children.append(
                subprocess.Popen(
                    ["node", script, kind],
                    env={"PATH": os.environ["PATH"], "PORT": str(ports[kind])},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
            )
            _wait_for_words(children[-1])
        path = "sse" if kind == "sse" else "mcp"
        return {"url": f"http://127.0.0.1:{ports[kind]}/{path}"}

    yield settings
    for child in children:
        child.kill()
        child.communicate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_words(child: subprocess.Popen[bytes]) -> None:
    """The server says on standard error that it listens."""
    assert child.stderr is not None
    for line in child.stderr:
        if b"port" in line:
            return
    pytest.fail("server-everything ended before it listened")


@pytest.mark.parametrize("kind", ["stdio", "sse", "streamableHttp"])
async def test_everything_that_server_everything_offers_works(
    connect: Connect, everything: Everything, kind: str
) -> None:
    async with connect({"all": everything(kind)}) as bench:
        kinds = [tool.offer.kind for tool in bench.hub.tools()]
        assert {name: kinds.count(name) for name in set(kinds)} == {
            "tool": 12,
            "resource": 7,
            "template": 2,
            "prompt": 4,
        }
        await _plain_tools(bench)
        await _rich_tools(bench)
        await _resources(bench)
        await _prompts(bench)
        await _long_operation(bench)


async def _plain_tools(bench: Bench) -> None:
    assert await bench.text("mcp_all_echo", message="hello") == "Echo: hello"
    assert "is 5" in await bench.text("mcp_all_get-sum", a=2, b=3)
    assert "PATH" in json.loads(await bench.text("mcp_all_get-env"))
    weather = await bench.call("mcp_all_get-structured-content", location="Chicago")
    assert weather.data is not None
    assert set(weather.data) == {"temperature", "conditions", "humidity"}
    assert "logging" in await bench.text("mcp_all_toggle-simulated-logging")
    assert "update" in (await bench.text("mcp_all_toggle-subscriber-updates")).lower()


async def _rich_tools(bench: Bench) -> None:
    image = (await bench.call("mcp_all_get-tiny-image")).content[1]
    assert isinstance(image, ImageBlock)
    assert image.media_type == "image/png"
    noted = await bench.call(
        "mcp_all_get-annotated-message", messageType="error", includeImage=True
    )
    assert [type(block).__name__ for block in noted.content] == ["TextBlock", "ImageBlock"]
    links = await bench.text("mcp_all_get-resource-links", count=3)
    assert links.count("[resource ") == 3
    for kind in ("Text", "Blob"):
        inside = await bench.text("mcp_all_get-resource-reference", resourceType=kind, resourceId=2)
        assert f"[demo://resource/dynamic/{kind.lower()}/2]\nResource 2: This is a" in inside
    packed = await bench.call(
        "mcp_all_gzip-file-as-resource",
        name="x.txt.gz",
        data="data:text/plain,hello",
        outputType="resource",
    )
    (file,) = packed.media
    assert gzip.decompress(Path(file).read_bytes()) == b"hello"


async def _resources(bench: Bench) -> None:
    static = await bench.text("mcp_all_resource_features_md")
    assert static.startswith("# ")
    text = await bench.text("mcp_all_resource_Dynamic_Text_Resource", resourceId="1")
    assert text.startswith("Resource 1: This is a plaintext resource")
    blob = await bench.text("mcp_all_resource_Dynamic_Blob_Resource", resourceId="1")
    assert "Resource 1: This is a base64 blob" in blob


async def _prompts(bench: Bench) -> None:
    assert (await bench.text("mcp_all_prompt_simple-prompt")).startswith("[user]\n")
    assert "Rome" in await bench.text("mcp_all_prompt_args-prompt", city="Rome")
    completed = await bench.text(
        "mcp_all_prompt_completable-prompt", department="Engineering", name="Alice"
    )
    assert "Alice" in completed
    embedded = await bench.text(
        "mcp_all_prompt_resource-prompt", resourceType="Text", resourceId="1"
    )
    assert "[demo://resource/dynamic/text/1]" in embedded


async def _long_operation(bench: Bench) -> None:
    done = await bench.text("mcp_all_trigger-long-running-operation", duration=0.4, steps=2)
    assert "completed" in done
    assert bench.told == ["1/2", "2/2"]


async def test_files_stay_in_the_folders_that_the_owner_named(
    connect: Connect, modules: Path, tmp_path: Path
) -> None:
    shared, secret = tmp_path / "shared", tmp_path / "secret.txt"
    shared.mkdir()
    secret.write_text("canary")
    script = str(modules / "server-filesystem" / "dist" / "index.js")
    async with connect({"files": {"command": "node", "args": [script, str(shared)]}}) as bench:
        assert len(bench.names) == 14
        await bench.call("mcp_files_write_file", path=str(shared / "a.txt"), content="words")
        assert (shared / "a.txt").read_text() == "words"
        read = await bench.text("mcp_files_read_text_file", path=str(shared / "a.txt"))
        assert "words" in read
        try:
            outside = await bench.call("mcp_files_read_text_file", path=str(secret))
        except ToolError as error:
            assert "canary" not in str(error)  # noqa: PT017 - either form is the server's choice
        else:
            assert outside.is_error
            assert "canary" not in str(outside.content)
