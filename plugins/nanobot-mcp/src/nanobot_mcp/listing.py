"""Reads all pages of a server's lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from mcp import Client, MCPError, UriTemplate
from mcp.shared.uri_template import InvalidUriTemplate
from mcp_types import Prompt, Resource, ResourceTemplate, Tool

from nanobot_mcp.offers import Offer, reading_offer, tool_offer

MAX_TOOLS = 300
MAX_OTHERS = 100
_MAX_PAGES = 100
T = TypeVar("T")


async def read_offers(client: Client) -> tuple[tuple[Offer, ...], tuple[str, ...]]:
    """Return the server's offers in its order, and notes about what is omitted.

    Raises:
        MCPError: the server cannot list its tools. If another list fails, that is a note.
    """
    offers: list[Offer] = []
    notes: list[str] = []
    has = client.server_capabilities
    if has.tools is not None:
        tools = await _all(client.list_tools, lambda page: page.tools, MAX_TOOLS, notes)
        for tool in tools:
            if tool.execution is not None and tool.execution.task_support == "required":
                notes.append(f"tool '{tool.name}' runs only as a task, which is not supported")
            else:
                offers.append(_from_tool(tool))
    if has.resources is not None:
        found = await _others(client.list_resources, lambda page: page.resources, notes)
        offers += map(_from_resource, found)
        found = await _others(
            client.list_resource_templates, lambda page: page.resource_templates, notes
        )
        offers += _from_templates(found, notes)
    if has.prompts is not None:
        found = await _others(client.list_prompts, lambda page: page.prompts, notes)
        offers += map(_from_prompt, found)
    known: dict[tuple[str, str, str], Offer] = {}
    for offer in offers:
        key = (offer.kind, offer.name, offer.address)
        if key in known:
            notes.append(f"{offer.kind} '{offer.name}' is listed twice; the first is used")
        known.setdefault(key, offer)
    return tuple(known.values()), tuple(notes)


async def _others(
    fetch: Callable[..., Awaitable[Any]], items: Callable[[Any], list[T]], notes: list[str]
) -> list[T]:
    try:
        return await _all(fetch, items, MAX_OTHERS, notes)
    except MCPError as error:
        notes.append(f"a list could not be read: {error.message}")
        return []


async def _all(
    fetch: Callable[..., Awaitable[Any]],
    items: Callable[[Any], list[T]],
    limit: int,
    notes: list[str],
) -> list[T]:
    """Return the items of all pages, at most `limit`. The number of pages is limited too."""
    found: list[T] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await fetch(cursor=cursor)
        found += items(page)
        cursor = page.next_cursor
        if cursor is None or len(found) > limit:
            break
    if len(found) > limit or cursor is not None:
        notes.append(f"a list has more than {limit} entries; the first {limit} are offered")
    return found[:limit]


def _from_tool(tool: Tool) -> Offer:
    hints = tool.annotations
    return tool_offer(
        tool.name,
        tool.description or tool.title,
        tool.input_schema,
        {
            "read_only": hints.read_only_hint if hints else None,
            "idempotent": hints.idempotent_hint if hints else None,
        },
    )


def _from_resource(resource: Resource) -> Offer:
    return reading_offer(
        "resource", resource.name, resource.uri, resource.description or resource.title
    )


def _from_templates(templates: Iterable[ResourceTemplate], notes: list[str]) -> Iterator[Offer]:
    for template in templates:
        try:
            names = UriTemplate.parse(template.uri_template).variable_names
        except InvalidUriTemplate:
            notes.append(f"the address of template '{template.name}' cannot be read")
            continue
        yield reading_offer(
            "template",
            template.name,
            template.uri_template,
            template.description or template.title,
            [(name, None, True) for name in dict.fromkeys(names)],
        )


def _from_prompt(prompt: Prompt) -> Offer:
    return reading_offer(
        "prompt",
        prompt.name,
        "",
        prompt.description or prompt.title,
        [(item.name, item.description, item.required is True) for item in prompt.arguments or ()],
    )
