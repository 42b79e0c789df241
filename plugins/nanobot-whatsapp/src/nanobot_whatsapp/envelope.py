"""The body of a call of the Cloud API, which contains messages and statuses of several entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

from pydantic import ValidationError

from nanobot_core import JsonObject
from nanobot_whatsapp.wire import Wire

Warn: TypeAlias = Callable[..., None]
"""As ``warning`` of a plugin's logger."""
WireT = TypeVar("WireT", bound=Wire)


class Change:
    """The messages and statuses of one entry, each as JSON.

    Attributes:
        phone_number_id: the number that they belong to.
    """

    def __init__(self, value: JsonObject) -> None:
        self.phone_number_id: str = str(_mapping(value.get("metadata")).get("phone_number_id", ""))
        self.contacts: list[object] = _items(value.get("contacts"))
        self.messages: list[object] = _items(value.get("messages"))
        self.statuses: list[object] = _items(value.get("statuses"))
        self.errors: list[object] = _items(value.get("errors"))


def changes(body: object) -> Iterator[Change]:
    """Yield the changes in the body of a call that concern messages."""
    for entry in _items(_mapping(body).get("entry")):
        for change in map(_mapping, _items(_mapping(entry).get("changes"))):
            if change.get("field") == "messages":
                yield Change(_mapping(change.get("value")))


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


def parsed(model: type[WireT], items: Iterable[object], warn: Warn) -> Iterator[WireT]:
    """Yield the items that are valid; the others are reported and dropped."""
    for item in items:
        try:
            yield model.model_validate(item)
        except ValidationError as error:
            places = ", ".join(".".join(map(str, e["loc"])) for e in error.errors()[:3])
            warn("a malformed {} of WhatsApp is dropped: {}", model.__name__, places)
