"""``nanobot gateway``: ready, idle, under load through the durable queue, and used by a command."""

from __future__ import annotations

import base64
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml
from anyio.from_thread import start_blocking_portal

from benchmarks.child import (
    PROGRAMS,
    ChildError,
    child_rows,
    environment_of,
    nanobot_command,
    program,
    run_child,
)
from benchmarks.measure import Goal, Row, compare, interleave, single
from benchmarks.one_shot import shoot, to_request_row
from benchmarks.server import model_server, nanobot_home
from nanobot_core.testing.playing import write_config
from nanobot_core.testing.stand_in import load_stand_in

ROUNDS = 5
IDLE_S = 5.0
CONNECT_S = 10.0
"""Until a channel has imported its library and is connected, on a busy machine."""
SESSIONS, MESSAGES, DELAY_S = 100, 10, 0.05
END_LIMIT_S = 30.0
POLL_S = 0.005
_TELEGRAM = PROGRAMS.parents[1] / "plugins/nanobot-telegram/tests/local_telegram.py"


def rows(scale: int) -> Iterator[Row]:
    """Measure with a webhook channel and every plugin that is installed. Needs Linux."""
    yield from _ready_and_idle(ROUNDS * scale)
    yield from _idle_with_telegram(ROUNDS * scale)
    yield from _asked(ROUNDS * scale)
    yield from _loaded(scale + 1)


@dataclass(frozen=True, slots=True)
class Idle:
    """A process from its start to the end of some idle seconds. CPU in percent of one processor."""

    ready_ms: float
    rss_mb: float
    cpu: float


def _ready_and_idle(rounds: int) -> Iterator[Row]:
    with nanobot_home() as home:
        _configure(home)
        environment = environment_of(home)
        ours, floor = interleave(
            rounds,
            lambda: _idle(nanobot_command("gateway"), environment),
            lambda: _idle(program("serve_asyncio"), environment),
        )
    yield compare(
        "ready / bare asyncio server",
        "ms",
        [one.ready_ms for one in ours],
        [one.ready_ms for one in floor],
        Goal(1200, "value"),
    )
    yield compare(
        "idle, resident / bare asyncio server",
        "MB",
        [one.rss_mb for one in ours],
        [one.rss_mb for one in floor],
        Goal(75, "value"),
    )
    yield single("idle, cpu", "%", [one.cpu for one in ours], Goal(0.2, "value"))


def _idle_with_telegram(rounds: int) -> Iterator[Row]:
    stand_in = load_stand_in(_TELEGRAM)()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(stand_in),
        nanobot_home() as home,
    ):
        write_config(home, [stand_in], "http://127.0.0.1:9/v1", plugins={"policy": "all"})
        environment = environment_of(home)
        command = nanobot_command("gateway")
        found = [_idle(command, environment, settle_s=CONNECT_S) for _ in range(rounds)]
    title = "idle with Telegram"
    yield single(f"{title}, resident", "MB", [one.rss_mb for one in found], Goal(90, "value"))
    yield single(f"{title}, cpu", "%", [one.cpu for one in found])


def _asked(rounds: int) -> Iterator[Row]:
    with model_server() as server, nanobot_home(server.url) as home:
        _configure(home)
        environment = environment_of(home)
        command, floor = nanobot_command("agent", "-m", "hello"), program("httpx_once", server.url)
        with running(nanobot_command("gateway"), environment):
            ours, bare = interleave(
                rounds,
                lambda: shoot(command, environment, server),
                lambda: shoot(floor, environment, server),
            )
    title = "agent -m through the gateway / bare httpx"
    yield to_request_row(title, ours, bare, Goal(150, "value"))
    yield from child_rows(
        f"{title}, whole process", [one.child for one in ours], [one.child for one in bare]
    )
    yield single("agent -m through the gateway, resident", "MB", [s.child.rss_mb for s in ours])


def _loaded(rounds: int) -> Iterator[Row]:
    reply = {"text": "Done.", "delay_s": DELAY_S}
    burst = {"sessions": SESSIONS, "messages": MESSAGES, "allow_from": ["*"]}
    with model_server(default=reply) as server, nanobot_home(server.url) as home:
        _configure(home, burst={**burst, "rate_limit": SESSIONS * MESSAGES})
        environment = environment_of(home)

        def ours() -> tuple[float, float]:
            for folder in ("gateway", "workspace/sessions"):
                shutil.rmtree(home / folder, ignore_errors=True)
            with running(nanobot_command("gateway"), environment) as process:
                assert process.stdout is not None
                return float(process.stdout.readline()), largest_mb(process.pid)

        def pooled() -> float:
            command = program("many_httpx", server.url, str(SESSIONS), str(MESSAGES))
            return float(run_child(command, environment).output)

        found = [(ours(), pooled()) for _ in range(rounds)]
    title = f"{SESSIONS} chats x {MESSAGES} through the queue"
    rates = [rate for (rate, _), _ in found]
    yield single(f"{title}, messages a second", "/s", rates, Goal(400, "value", at_least=True))
    yield compare(
        f"{title} / one httpx client",
        "/s",
        rates,
        [floor for _, floor in found],
        Goal(2.0, at_least=True),
    )
    yield single(f"{title}, resident", "MB", [mb for (_, mb), _ in found], Goal(120, "value"))


def _configure(home: Path, **channels: Mapping[str, object]) -> None:
    """Enable a webhook channel, and those that are given."""
    file = home / "config.yaml"
    config: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    secret = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"
    webhook = {"secret": secret, "callback_url": "http://127.0.0.1:9/", "allow_from": ["*"]}
    config["channels"] = {"webhook": webhook, **channels}
    config["gateway"] = {"port": 0}
    config["agents"]["max_concurrent_turns"] = SESSIONS
    if channels:
        config["plugins"]["local"] = [str(PROGRAMS / f"{name}.py") for name in channels]
    file.write_text(yaml.safe_dump(config), "utf-8")


def _idle(command: Sequence[str], environment: Mapping[str, str], settle_s: float = 1.0) -> Idle:
    started_s = time.perf_counter()
    with running(command, environment) as process:
        ready_ms = (time.perf_counter() - started_s) * 1e3
        time.sleep(settle_s)  # work that a start defers is not idle time
        before_s = _cpu_s(process.pid)
        time.sleep(IDLE_S)
        cpu = (_cpu_s(process.pid) - before_s) / IDLE_S * 100
        return Idle(ready_ms, _status_mb(process.pid, "VmRSS"), cpu)


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Run a server for the block, which begins when the server prints that it is ready."""
    # A pipe that nobody reads would be full after some hundred turns.
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            while "ready" not in _text(log):
                if process.poll() is not None:
                    msg = f"'{' '.join(command)}' did not start: {_text(log)[-2000:]}"
                    raise ChildError(msg)
                time.sleep(POLL_S)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _text(log: TextIO) -> str:
    log.seek(0)
    return log.read()


def _cpu_s(pid: int) -> float:
    """Return the CPU time of the threads so far; ticks are too long for an idle process.

    Source: sched-stats in the documentation of Linux.
    """
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text("ascii").split()[0]) for thread in threads) / 1e9


def largest_mb(pid: int) -> float:
    """Return the largest resident set of a running process, in units of 1,000,000 bytes."""
    return _status_mb(pid, "VmHWM")


def _status_mb(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1.024e-3
