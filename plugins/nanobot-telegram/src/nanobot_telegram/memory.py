"""What must outlive one connection: the core makes a new channel for each start of it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from nanobot_telegram.leftovers import Leftovers
from nanobot_telegram.rich_text import RichText

if TYPE_CHECKING:
    from nanobot_core import PluginContext

_KEPT = 500
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Recent(Generic[KeyT, ValueT]):
    """A mapping that forgets the oldest entries."""

    def __init__(self, size: int = _KEPT) -> None:
        self._size = size
        self._entries: OrderedDict[KeyT, ValueT] = OrderedDict()

    def get(self, key: KeyT) -> ValueT | None:
        """Return what is kept under `key`, or ``None``."""
        return self._entries.get(key)

    def put(self, key: KeyT, value: ValueT) -> None:
        """Keep `value` as the newest entry."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def drop(self, key: KeyT) -> None:
        """Forget `key`, where it is there."""
        self._entries.pop(key, None)


@dataclass(slots=True)
class ShownDraft:
    """A message that shows an answer as far as it has come.

    Attributes:
        message_id: its id.
        shown: what it says; ``None`` after an edit whose outcome is not known.
    """

    message_id: int
    shown: RichText | None


@dataclass(slots=True)
class Memory:
    """Facts of this process.

    Attributes:
        leftovers: drafts that are on show, on disk.
        sent: idempotency key to the number of pieces that were sent.
        drafts: chat and draft to the message that shows it.
        moved: old to new ids of groups.
        has_begun: the channel has received before.
    """

    leftovers: Leftovers
    sent: Recent[str, int] = field(default_factory=Recent)
    drafts: Recent[tuple[str, str], ShownDraft] = field(default_factory=Recent)
    moved: Recent[int | str, int] = field(default_factory=Recent)
    has_begun: bool = False


def make_memory(ctx: PluginContext) -> Memory:
    """Return a memory of nothing yet; for ``ctx.shared``."""
    return Memory(Leftovers(ctx.data_dir / "drafts.json"))
