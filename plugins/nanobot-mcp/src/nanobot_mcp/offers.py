"""What a server offers, in the form in which it becomes tools and is kept on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias, get_args

from nanobot_core import JsonObject, shorten
from nanobot_mcp.schema import normalise_schema

Kind: TypeAlias = Literal["tool", "resource", "template", "prompt"]
MAX_DESCRIPTION_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool, resource, template of resources, or prompt.

    Attributes:
        kind: what it is.
        name: what the server calls it.
        address: URI of a resource, or the template of one; empty for others.
        description: in the server's words.
        parameters: JSON Schema of the arguments, in normal form.
        read_only: a use of it changes nothing, by the server's word.
        repeatable: it may be used again when it is unknown whether it worked.
        notes: what the normal form does not say of the server's schema.
    """

    kind: Kind
    name: str
    address: str
    description: str
    parameters: JsonObject
    read_only: bool = False
    repeatable: bool = False
    notes: tuple[str, ...] = ()


def tool_offer(
    name: str, description: str | None, schema: JsonObject, hints: Mapping[str, bool | None]
) -> Offer:
    """Return the offer of a tool; of `hints`, ``read_only`` and ``idempotent`` count."""
    parameters, notes = normalise_schema(schema)
    read_only = hints.get("read_only") is True
    return Offer(
        kind="tool",
        name=name,
        address="",
        description=_bounded(description or f"The tool '{name}' of an MCP server."),
        parameters=parameters,
        read_only=read_only,
        repeatable=read_only or hints.get("idempotent") is True,
        notes=notes,
    )


def reading_offer(
    kind: Kind,
    name: str,
    address: str,
    description: str | None,
    arguments: Iterable[tuple[str, str | None, bool]] = (),
) -> Offer:
    """Return the offer of a resource, a template or a prompt: texts in, nothing changed.

    Args:
        kind: what it is.
        name: what the server calls it.
        address: see `Offer`.
        description: in the server's words.
        arguments: name, description, and whether it is required.
    """
    listed = list(arguments)
    properties: JsonObject = {
        argument: {"type": "string", **({"description": words} if words else {})}
        for argument, words, _ in listed
    }
    schema: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": [argument for argument, _, is_required in listed if is_required],
        "additionalProperties": False,
    }
    parameters, notes = normalise_schema(schema)
    beginning = f"Get the prompt '{name}'" if kind == "prompt" else f"Read the resource {address}"
    words = f"{beginning}. {description or ''}".strip()
    return Offer(kind, name, address, _bounded(words), parameters, True, True, notes)


def offer_to_json(offer: Offer) -> JsonObject:
    """Return `offer` as plain data."""
    return {**asdict(offer), "notes": list(offer.notes)}


def offer_from_json(record: object) -> Offer:
    """Return what `offer_to_json` gave.

    Raises:
        ValueError: `record` is nothing of that form.
    """
    if not isinstance(record, dict) or record.get("kind") not in get_args(Kind):
        msg = "no record of an offer"
        raise ValueError(msg)
    texts = [record.get(key) for key in ("name", "address", "description")]
    if not all(isinstance(text, str) for text in texts):
        msg = "an offer without name, address or description"
        raise ValueError(msg)
    notes = record.get("notes")
    return Offer(
        record["kind"],
        record["name"],
        record["address"],
        record["description"],
        normalise_schema(record.get("parameters"))[0],
        record.get("read_only") is True,
        record.get("repeatable") is True,
        tuple(str(note) for note in notes) if isinstance(notes, list) else (),
    )


def _bounded(description: str) -> str:
    text = description.strip()
    return text if len(text) <= MAX_DESCRIPTION_CHARS else shorten(text, MAX_DESCRIPTION_CHARS)
