"""``nanobot mcp``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any, NoReturn, TypeAlias, TypeVar

import typer

from nanobot_core import (
    ImageBlock,
    PathGuard,
    PluginContext,
    TextBlock,
    ToolContext,
    ToolError,
    ToolRegistry,
    ToolResult,
    shorten,
)
from nanobot_mcp.hub import Hub
from nanobot_mcp.settings import ServerSettings
from nanobot_mcp.tool import McpTool

OpenContext: TypeAlias = Callable[[], AbstractAsyncContextManager[PluginContext]]
T = TypeVar("T")

app: typer.Typer = typer.Typer(
    help="List, try and log in to MCP servers.",
    no_args_is_help=True,
    epilog="Example:\n\n\b\n  nanobot mcp list",
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ServerName = Annotated[str, typer.Argument(help="Name of the server in the configuration.")]


@app.command("list")
def list_servers(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Connect all servers and print their state.

    Example: nanobot mcp list --json
    """
    rows = asyncio.run(_rows(ctx.obj))
    if as_json:
        _print_json(rows)
        return
    if not rows:
        typer.echo("No MCP server is configured; see tools.mcp_servers.", err=True)
        return
    typer.echo("\t".join(rows[0]))
    for row in rows:
        typer.echo("\t".join(map(str, row.values())))


@app.command()
def tools(
    ctx: typer.Context,
    server: Annotated[str | None, typer.Argument(help="Only the tools of this server.")] = None,
    as_json: AsJson = False,
) -> None:
    """Connect and list the tools under the names that the model sees.

    Example: nanobot mcp tools time
    """
    found, failures = asyncio.run(_tools(ctx.obj, server))
    if as_json:
        _print_json([_described(tool) for tool in found])
    else:
        for tool in found:
            typer.echo(f"{tool.name}\t{shorten(tool.description, 100)}")
    for failure in failures:
        typer.echo(failure, err=True)
    raise typer.Exit(1 if failures else 0)


@app.command()
def call(
    ctx: typer.Context,
    tool: Annotated[str, typer.Argument(help="Name as the model sees it.")],
    arguments: Annotated[str, typer.Argument(help="Arguments as a JSON object.")] = "{}",
    as_json: AsJson = False,
) -> None:
    """Call one tool.

    Example: nanobot mcp call mcp_time_get_current_time '{"timezone": "Europe/Berlin"}'
    """
    try:
        given = json.loads(arguments)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        typer.echo(f"the arguments must be a JSON object, found {shorten(arguments, 60)}", err=True)
        raise typer.Exit(2)
    result = asyncio.run(_call(ctx.obj, tool, given))
    if as_json:
        _print_json(_as_data(result))
    else:
        typer.echo(_text(result), err=result.is_error)
        for path in result.media:
            typer.echo(path)
    raise typer.Exit(1 if result.is_error else 0)


@app.command()
def login(
    ctx: typer.Context,
    server: ServerName,
    browser: Annotated[bool, typer.Option(help="Open the address in a browser.")] = True,
) -> None:
    """Log in to a remote server and store the tokens.

    Example: nanobot mcp login notes
    """
    problem = asyncio.run(_login(ctx.obj, server, browser))
    if problem:
        _fail(problem)
    typer.echo(f"logged in to '{server}'")


async def _rows(open_context: OpenContext) -> list[dict[str, Any]]:
    async with _connected(open_context, None) as hub:
        rows = []
        for name, server in hub.servers.items():
            connection = hub.connection(name)
            kinds = [tool.offer.kind for tool in hub.tools(name)]
            rows.append(
                {
                    "server": name,
                    "type": server.transport,
                    "state": "connected" if connection.state == "connected" else "failed",
                    "tools": kinds.count("tool"),
                    "resources": kinds.count("resource") + kinds.count("template"),
                    "prompts": kinds.count("prompt"),
                    "problem": connection.failure,
                }
            )
        counts = {"tools": 0, "resources": 0, "prompts": 0}
        rows += [
            {"server": name, "type": "", "state": "failed", **counts, "problem": problem}
            for name, problem in hub.problems.items()
        ]
        return rows


async def _tools(open_context: OpenContext, server: str | None) -> tuple[list[McpTool], list[str]]:
    async with _connected(open_context, server) as hub:
        names = [server] if server else list(hub.servers)
        failures = [
            f"'{name}': {problem}" for name in names if (problem := hub.connection(name).failure)
        ]
        return hub.tools(server), failures


async def _call(open_context: OpenContext, name: str, arguments: dict[str, Any]) -> ToolResult:
    async with open_context() as plugin:
        hub = plugin.shared(Hub)
        found = next((tool for tool in hub.tools() if tool.name == name), None)
        if found is None:
            await _connect(hub, list(hub.servers))
            found = next((tool for tool in hub.tools() if tool.name == name), None)
        registry = ToolRegistry()
        for tool in hub.tools():
            registry.register(tool)
        prepared = registry.prepare_call(name, arguments)
        if found is None or prepared.error is not None:
            return ToolResult(prepared.error or "", is_error=True)
        context = ToolContext(
            session_key="cli:mcp",
            turn_id="mcp-call",
            call_id="1",
            is_owner=True,
            workspace=plugin.workspace,
            files=PathGuard(plugin.workspace),
            clock=plugin.clock,
            progress=_print_progress,
        )
        try:
            return await found.execute(context, prepared.params)
        except ToolError as error:
            return ToolResult(f"Error: {error}", is_error=True)


async def _login(open_context: OpenContext, name: str, opens_browser: bool) -> str:
    """Return the problem, or an empty string."""
    from nanobot_mcp.login import log_in

    async def show(address: str) -> None:
        typer.echo(f"Open this address in a browser and allow the access:\n{address}", err=True)
        if opens_browser:
            await asyncio.to_thread(typer.launch, address)

    async with open_context() as plugin:
        hub = plugin.shared(Hub)
        server = _known(hub, name)
        if server.url is None:
            return f"'{name}' is a program on this machine and does not need a login"
        return await log_in(name, server, hub.ports(name), show)


@asynccontextmanager
async def _connected(open_context: OpenContext, server: str | None) -> AsyncIterator[Hub]:
    """Yield the hub after the first attempt to connect one server, or all of them."""
    async with open_context() as plugin:
        hub = plugin.shared(Hub)
        if server is not None:
            _known(hub, server)
        await _connect(hub, [server] if server is not None else list(hub.servers))
        yield hub


async def _connect(hub: Hub, names: Sequence[str]) -> None:
    if names:
        typer.echo(f"Connecting {', '.join(names)} …", err=True)
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(_settled(hub, name))


async def _settled(hub: Hub, name: str) -> None:
    connection = hub.connection(name)
    connection.open()
    await connection.first_outcome()


async def _print_progress(text: str) -> None:
    typer.echo(text, err=True)


def _known(hub: Hub, name: str) -> ServerSettings:
    if name in hub.problems:
        _fail(f"MCP server '{name}' cannot be used: {hub.problems[name]}")
    if name not in hub.servers:
        known = ", ".join(hub.servers) or "none"
        _fail(f"there is no MCP server '{name}'; configured and enabled: {known}")
    return hub.servers[name]


def _described(tool: McpTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "server": tool.server,
        "kind": tool.offer.kind,
        "original_name": tool.offer.name,
        "description": tool.description,
        "read_only": tool.read_only,
        "parameters": tool.parameters,
        "schema_notes": list(tool.offer.notes),
    }


def _as_data(result: ToolResult) -> dict[str, Any]:
    images = [block for block in result.content if isinstance(block, ImageBlock)]
    return {
        "text": _text(result),
        "is_error": result.is_error,
        "images": [{"media_type": image.media_type, "data": image.data} for image in images],
        "files": list(result.media),
        "data": result.data,
    }


def _text(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(block.text for block in result.content if isinstance(block, TextBlock))


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _fail(problem: str) -> NoReturn:
    typer.echo(problem, err=True)
    raise typer.Exit(1)
