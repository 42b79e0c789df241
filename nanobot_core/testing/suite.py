"""What all conformance suites have in common."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from abc import ABC
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from nanobot_core.testing.context import FakeGateway, FakePluginContext


class ConformanceSuite(ABC):  # noqa: B024 - the subclasses have abstract methods
    """Base of the suites. A subclass supplies what is tested and may add tests of its own.

    It can neither override nor remove an inherited test: the name of a suite must mean the same
    for every plugin.
    """

    pytestmark: ClassVar[pytest.MarkDecorator] = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        """Run on asyncio."""
        return "asyncio"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherited = {name for base in cls.__mro__[1:] for name in vars(base)}
        changed = sorted(
            name for name in vars(cls) if name.startswith("test_") and name in inherited
        )
        if changed:
            msg = f"{cls.__name__} changes tests of its contract: {', '.join(changed)}"
            raise TypeError(msg)


class ContextSuite(ConformanceSuite):
    """Base of the suites whose objects are made from a plugin's context.

    Attributes:
        plugin_id: the plugin's id.
    """

    plugin_id: str = "example"

    def make_context(self, tmp_path: Path) -> FakePluginContext:
        """Return the context; override it to give settings or environment."""
        return FakePluginContext(tmp_path, plugin_id=self.plugin_id, gateway=FakeGateway())


async def ends_within(task: asyncio.Task[Any], limit_s: float) -> bool:
    """Return whether `task` is done after at most `limit_s` seconds.

    A task that is not is left behind, so that it does not block the end of the event loop.
    """
    await asyncio.wait({task}, timeout=limit_s)
    if not task.done():
        asyncio.tasks._unregister_task(task)  # noqa: SLF001 - documented for extensions
    return task.done()


_CHANGES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_listeners: list[Callable[[str, tuple[Any, ...]], None]] = []
"""Called at each audit event. Python cannot remove an audit hook, so there is one for all."""


@functools.cache
def _install_audit_hook() -> None:
    def pass_on(event: str, args: tuple[Any, ...]) -> None:
        for listener in _listeners:
            listener(event, args)

    sys.addaudithook(pass_on)


@contextmanager
def audited(listener: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    """Call `listener` with each audit event of this process, such as ``open``."""
    _install_audit_hook()
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def changed_file(event: str, args: tuple[Any, ...]) -> str:
    """Return the file that an audit event is about to change; empty for every other event."""
    if event in _CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & _WRITING):
        return os.fsdecode(args[0]) if isinstance(args[0], str | bytes) else ""
    return ""


@contextmanager
def file_changes(*, outside: Path) -> Iterator[list[str]]:
    """Collect the absolute paths that this process changes, but those below `outside`."""
    found: list[str] = []
    allowed = (str(outside.resolve()), os.devnull)

    def listen(event: str, args: tuple[Any, ...]) -> None:
        path = changed_file(event, args)
        # Python writes compiled modules when it imports them.
        if path.startswith("/") and not path.startswith(allowed) and "__pycache__" not in path:
            found.append(path)

    with audited(listen):
        yield found
