"""AlwaysAllowed: calls that the owner has allowed permanently."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Self

from nanobot_core.disk import replace_file
from nanobot_core.record import dataclass
from nanobot_core.tasks import finish_in_thread


@dataclass(frozen=True, slots=True)
class AllowedCall:
    """A call that needs no further approval when the owner makes it.

    Attributes:
        tool: ``plugin/name`` of the tool.
        subject: what exactly is allowed, such as a command with its folder.
    """

    tool: str
    subject: str


class AlwaysAllowed:
    """Keeps the calls in a file of nanobot's own folder, which no tool can write.

    Every check reads the file, so that processes share it and an entry that the owner removes no
    longer counts.

    Args:
        file: created with the first call.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._writing = asyncio.Lock()

    @classmethod
    def below(cls, home: Path) -> Self:
        """Return the calls that are kept in nanobot's folder."""
        return cls(home / "allowed.json")

    async def has(self, call: AllowedCall) -> bool:
        """Whether the call is allowed; a file that cannot be read allows nothing."""
        return call in await asyncio.to_thread(self.read)

    async def add(self, call: AllowedCall) -> None:
        """Allow the call from now on.

        Raises:
            OSError: the file cannot be written.
        """
        async with self._writing:
            await finish_in_thread(lambda: self._write([*self.read(), call]))

    def remove(self, call: AllowedCall) -> bool:
        """Require approval again; False if the call was not allowed. Blocks."""
        found = self.read()
        if call not in found:
            return False
        self._write([each for each in found if each != call])
        return True

    def read(self) -> list[AllowedCall]:
        """Return the calls in the order in which they were allowed. Blocks."""
        try:
            content = json.loads(self._file.read_text("utf-8"))
            return [AllowedCall(str(item["tool"]), str(item["subject"])) for item in content]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            from loguru import logger

            logger.warning(
                "cannot read {}, so the owner is asked about every call: {}", self._file, error
            )
            return []

    def _write(self, calls: list[AllowedCall]) -> None:
        content = [asdict(call) for call in dict.fromkeys(calls)]
        replace_file(self._file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
