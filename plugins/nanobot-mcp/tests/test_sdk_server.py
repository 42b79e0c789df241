"""All features of the protocol, over each of the three transports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nanobot_core import ImageBlock, ToolFailed

if TYPE_CHECKING:
    from conftest import Bench, Connect, Serve

HERE = Path(__file__).resolve().parent
TRANSPORTS = ("stdio", "sse", "http")


def settings_of(kind: str, serve: Serve, name: str = "") -> dict[str, Any]:
    if kind == "stdio":
        return {"command": sys.executable, "args": [str(HERE / "sdk_server.py"), "stdio"]}
    return {"url": serve(kind, name)}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_tools_resources_and_prompts_are_offered_and_answer(
    connect: Connect, serve: Serve, kind: str
) -> None:
    async with connect({"s": settings_of(kind, serve)}) as bench:
        assert bench.names == [
            "mcp_s_add",
            "mcp_s_fail",
            "mcp_s_grow",
            "mcp_s_mixed",
            "mcp_s_picture",
            "mcp_s_prompt_greet",
            "mcp_s_resource_note",
            "mcp_s_resource_page",
            "mcp_s_steps",
        ]
        await _tools_answer(bench)
        assert await bench.text("mcp_s_resource_note") == "remember the milk"
        assert await bench.text("mcp_s_resource_page", number="7") == "page 7"
        greeting = await bench.text("mcp_s_prompt_greet", name="Ada")
        assert greeting == "[user]\nSay hello to Ada."


async def _tools_answer(bench: Bench) -> None:
    result = await bench.call("mcp_s_add", a=2, b=3)
    assert result.data == {"total": 5}
    assert '"total": 5' in str(result.content)
    failed = await bench.call("mcp_s_fail")
    assert failed.is_error
    assert "the tank is empty" in str(failed.content)
    image = (await bench.call("mcp_s_picture")).content[0]
    assert isinstance(image, ImageBlock)
    assert image.media_type == "image/png"
    assert await bench.text("mcp_s_steps") == "arrived"
    assert bench.told == ["halfway (1/2)", "there (2/2)"]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_changes_of_the_offer_are_published(
    connect: Connect, serve: Serve, kind: str
) -> None:
    async with connect({"s": settings_of(kind, serve, "growing")}) as bench:
        assert await bench.text("mcp_s_grow") == "more"
        await bench.until(lambda: "mcp_s_grown" in bench.names)
        assert await bench.text("mcp_s_grown") == "grown"


@pytest.mark.anyio
async def test_parts_of_a_result_are_shown_by_kind(connect: Connect, serve: Serve) -> None:
    async with connect({"s": settings_of("http", serve)}) as bench:
        result = await bench.call("mcp_s_mixed")

    (sound,) = result.media
    assert Path(sound).read_bytes() == b"not really a sound"
    lines = str(result.content).splitlines()
    assert lines[0] == "first"
    assert lines[1] == f"[audio: audio/wav, 18 bytes; saved as {sound}]"
    assert lines[2] == "[resource far: demo://far]"
    assert lines[3:] == ["[demo://near]", "near text", "[demo://data]", '{"inside": true}']


@pytest.mark.anyio
async def test_hints_decide_what_is_read_only_and_what_may_be_repeated(
    connect: Connect, serve: Serve
) -> None:
    async with connect({"s": settings_of("http", serve)}) as bench:
        assert bench.tool("mcp_s_add").read_only
        assert bench.tool("mcp_s_add").idempotent
        assert not bench.tool("mcp_s_grow").read_only
        assert not bench.tool("mcp_s_grow").idempotent
        assert bench.tool("mcp_s_resource_note").read_only
        assert bench.tool("mcp_s_prompt_greet").read_only


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("enabled", "names"),
    [
        (["*"], 9),
        ([], 0),
        (["add", "mcp_s_prompt_greet"], 2),
        (["mcp_s_resource_*"], 2),
        (["grew"], 0),
    ],
)
async def test_only_enabled_tools_are_offered(
    connect: Connect, serve: Serve, enabled: list[str], names: int
) -> None:
    server = {**settings_of("http", serve), "enabledTools": enabled}
    async with connect({"s": server}) as bench:
        assert bench.hub.connection("s").state == "connected"
        assert len(bench.names) == names


@pytest.mark.anyio
async def test_an_unknown_tool_of_the_wire_is_an_error_result(
    connect: Connect, serve: Serve
) -> None:
    """A name from the last connection that the server no longer knows."""
    async with connect({"s": settings_of("stdio", serve)}) as bench:
        await bench.text("mcp_s_grow")
        await bench.until(lambda: "mcp_s_grown" in bench.names)
        tool = bench.tool("mcp_s_grown")
        bench.hub.connection("s")._link.ended.set()  # type: ignore[union-attr]  # connected
        await bench.until(lambda: "mcp_s_grown" not in bench.names)

        try:
            result = await tool.execute(bench.call_context(), {})
        except ToolFailed as error:
            assert "grown" in str(error)  # noqa: PT017 - either form is the server's choice
        else:
            assert result.is_error
