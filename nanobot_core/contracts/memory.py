"""Memory backend: recall across sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from nanobot_core.contracts.plugin import ContextBlock
from nanobot_core.messages import Message
from nanobot_core.record import dataclass


class MemoryBackend(ABC):
    """Remembers beyond the history of a session. One is active."""

    @abstractmethod
    async def context(self, session_key: str) -> Sequence[ContextBlock]:
        """Return the passages for the prompt, if any.

        Stable passages must not change unless their content has changed.
        """

    @abstractmethod
    async def consolidate(
        self, session_key: str, messages: Sequence[Message], token_budget: int
    ) -> int:
        """Take up the oldest messages of a session that has outgrown its budget.

        Args:
            session_key: the session.
            messages: its unconsolidated history, oldest first.
            token_budget: tokens that the remaining history may have.

        Returns:
            How many messages from the start were taken up; 0 when the history fits. The first
            message that remains is a user message.
        """

    @abstractmethod
    async def archive(self, session_key: str, messages: Sequence[Message]) -> None:
        """Take up all of `messages`, because the session starts afresh."""

    async def aclose(self) -> None:
        """Finish writing. Called once at shutdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpec:
    """A memory backend as a plugin contributes it; ``memory.backend`` names the active one.

    Attributes:
        name: value for ``memory.backend``.
        factory: ``package.module:name`` of a callable ``(ctx)`` that returns a `MemoryBackend`.
    """

    name: str
    factory: str
