"""What a server offers: tools, resources, templates and prompts, and their copy on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from nanobot_core import JsonObject, JsonValue, PrivateFile, shorten
from nanobot_mcp.schema import normalise_schema
from nanobot_mcp.settings import ServerSettings, fingerprint

Kind: TypeAlias = Literal["tool", "resource", "template", "prompt"]
MAX_DESCRIPTION_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool, resource, template of resources, or prompt.

    Attributes:
        name: the server's name for it.
        address: URI of a resource or URI template; empty for tools and prompts.
        parameters: JSON Schema of the arguments, in normal form.
        read_only: the server declares that it changes nothing.
        idempotent: it may be repeated if its outcome is unknown.
        notes: what the normal form omits from the server's schema.
    """

    kind: Kind
    name: str
    address: str
    description: str
    parameters: JsonObject
    read_only: bool = False
    idempotent: bool = False
    notes: tuple[str, ...] = ()


def tool_offer(
    name: str, description: str | None, schema: JsonObject, hints: Mapping[str, bool | None]
) -> Offer:
    """Return the offer of a tool; `hints` has ``read_only`` and ``idempotent``."""
    parameters, notes = normalise_schema(schema)
    read_only = hints.get("read_only") is True
    return Offer(
        kind="tool",
        name=name,
        address="",
        description=_bounded(description or f"The tool '{name}' of an MCP server."),
        parameters=parameters,
        read_only=read_only,
        idempotent=read_only or hints.get("idempotent") is True,
        notes=notes,
    )


def reading_offer(
    kind: Kind,
    name: str,
    address: str,
    description: str | None,
    arguments: Iterable[tuple[str, str | None, bool]] = (),
) -> Offer:
    """Return the offer of a resource, a template or a prompt: read-only, with text arguments.

    Args:
        arguments: for each, its name, its description, and whether it is required.
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
    """Read the result of `offer_to_json`.

    Raises:
        ValueError: `record` is not such a result.
    """
    if not isinstance(record, dict) or record.get("kind") not in get_args(Kind):
        msg = "not an offer"
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
        record.get("idempotent") is True,
        tuple(str(note) for note in notes) if isinstance(notes, list) else (),
    )


def _bounded(description: str) -> str:
    text = description.strip()
    return text if len(text) <= MAX_DESCRIPTION_CHARS else shorten(text, MAX_DESCRIPTION_CHARS)


_FORMAT = 1
_MAX_BYTES = 20_000_000


class OfferStore:
    """Stores offers in one file for each server. All methods block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, name: str, server: ServerSettings) -> tuple[Offer, ...] | None:
        """Return the last offers of the server, or ``None`` if they are unknown.

        Offers of a server with other settings do not count. An invalid file counts as missing,
        because the next connection replaces it.
        """
        path = self._path(name)
        try:
            if path.stat().st_size > _MAX_BYTES:
                return None
            record = json.loads(path.read_text("utf-8"))
            if not isinstance(record, dict) or record.get("key") != _key(server):
                return None
            return tuple(offer_from_json(item) for item in record["offers"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def save(self, name: str, server: ServerSettings, offers: Sequence[Offer]) -> None:
        """Store `offers`, replacing the file in one step.

        Raises:
            OSError: the file cannot be written.
        """
        known: list[JsonValue] = [offer_to_json(offer) for offer in offers]
        PrivateFile(self._path(name)).replace({"key": _key(server), "offers": known})

    def _path(self, name: str) -> Path:
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def _key(server: ServerSettings) -> str:
    text = json.dumps([_FORMAT, fingerprint(server)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
