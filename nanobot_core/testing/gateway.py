"""GatewayProcess: a gateway in a process of its own, whose clock a test can move forward.

``python -m nanobot_core.testing.gateway`` is the command ``nanobot`` with a `SkippingClock`.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, Self

import nanobot_core.clock
from nanobot_core.clock import SystemClock
from nanobot_core.config.environment import process_environment
from nanobot_core.tasks import TaskOwner

LIMIT_S = 20.0
_END_LIMIT_S = 40.0
_POLL_S = 0.02
SKIPPED_S = 3_600.0
"""How far `GatewayProcess.skip_hour` moves the clock."""


class SkippingClock(SystemClock):
    """The machine's clock, moved forward by `skip`: who sleeps until then wakes up at once."""

    _ahead_s: ClassVar[float] = 0.0
    _skips: ClassVar[set[Callable[[], object]]] = set()

    @classmethod
    def skip(cls, seconds: float = SKIPPED_S) -> None:
        """Move all clocks of this process forward; can be called by a signal handler."""
        cls._ahead_s += seconds
        for wake in tuple(cls._skips):
            wake()

    def now(self) -> datetime:
        """Return the current instant, aware, in UTC."""
        return super().now() + timedelta(seconds=self._ahead_s)

    def monotonic_s(self) -> float:
        """Return seconds from an arbitrary start that never go back."""
        return super().monotonic_s() + self._ahead_s

    async def sleep(self, delay_s: float) -> None:
        """Wait until the clock has moved by `delay_s` seconds."""
        end_s = self.monotonic_s() + delay_s
        loop, skipped = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(skipped.set)

        self._skips.add(wake)
        try:
            while (left_s := end_s - self.monotonic_s()) > 0:
                skipped.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(skipped.wait(), left_s)
        finally:
            self._skips.discard(wake)
        if delay_s <= 0:
            await asyncio.sleep(0)


class GatewayProcess:
    """``nanobot gateway`` in a process; an async context manager that ends with a kill.

    Args:
        home: nanobot's folder with its ``config.yaml``.
        skips: `skip_hour` is used.

    Attributes:
        errors: what it has printed on stderr; read all the time, so that a full pipe stops nothing.
    """

    def __init__(self, home: Path, *, skips: bool = False) -> None:
        self.home: Path = home
        self.errors: str = ""
        self._printed = asyncio.Event()
        self._tasks = TaskOwner()
        self._module = "nanobot_core.testing.gateway" if skips else "nanobot_core"

    async def launch(self) -> None:
        """Start the process, and do not wait until it is ready."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self._module, "gateway"),
            env=gateway_environment(self.home),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._reading = self._tasks.spawn(self._read(), name="stderr of a gateway")

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self.errors += line.decode()
            self._printed.set()
        self._printed.set()

    async def __aenter__(self) -> Self:
        await self.launch()
        try:
            await self.hear("gateway ready")
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def hear(self, text: str) -> None:
        """Wait for a line on its stderr."""
        async with asyncio.timeout(LIMIT_S):
            while text not in self.errors:
                assert not self._reading.done(), self.errors
                self._printed.clear()
                await self._printed.wait()

    async def reported(self) -> str:
        """Return what it has printed on stderr so far."""
        with suppress(TimeoutError):
            while not self._reading.done():
                self._printed.clear()
                async with asyncio.timeout(_POLL_S):
                    await self._printed.wait()
        return self.errors

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def skip_hour(self) -> None:
        """Let an hour pass for everything in the gateway that uses its clock."""
        self.send(signal.SIGUSR1)

    async def ended(self, limit_s: float = _END_LIMIT_S) -> int:
        """Wait for its end and return the exit code."""
        async with asyncio.timeout(limit_s):
            await asyncio.shield(self._reading)
            return await self._process.wait()

    async def _end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._reading
        await self._process.wait()


def gateway_environment(home: Path) -> dict[str, str]:
    """Return the environment of a process of nanobot whose folder is `home`."""
    known = process_environment()
    core = str(Path(nanobot_core.clock.__file__).parents[1])
    kept = {name: value for name, value in known.items() if name.startswith("COV")}
    return {
        **kept,
        "HOME": str(home.parent),
        "NANOBOT_HOME": str(home),
        "PATH": known["PATH"],
        "PYTHONPATH": os.pathsep.join(path for path in (core, known.get("PYTHONPATH")) if path),
    }


async def until(holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait until `holds` returns True, for what happens in another process.

    Raises:
        TimeoutError: it did not within `limit_s` seconds.
    """
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110 - nothing here can be awaited
            await asyncio.sleep(_POLL_S)


def main() -> None:
    """Run the command ``nanobot``; SIGUSR1 moves its clock forward by an hour."""
    nanobot_core.clock.SystemClock = SkippingClock  # type: ignore[misc]
    signal.signal(signal.SIGUSR1, lambda *_: SkippingClock.skip())
    runpy.run_module("nanobot_core", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    # Pickles and class attributes refer to the imported module, not to ``__main__``.
    from nanobot_core.testing.gateway import main as imported_main

    imported_main()
