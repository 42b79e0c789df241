"""``nanobot gateway``: run it, show its state, reload, restart and stop it."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from nanobot_core.cli.options import (
    AsJson,
    Options,
    changes_since_lock,
    gateway_client,
    home_of,
    load_catalogue,
    load_settings,
    open_agent,
    options_of,
    read_settings,
)
from nanobot_core.cli.output import fail, print_facts, print_json, render_table, run_async, stderr
from nanobot_core.disk import damaged_files
from nanobot_core.tasks import EXIT_END_S, KILL_RESERVE_S

if TYPE_CHECKING:
    from nanobot_core.app.client import ControlClient
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.service import GatewayStatus, RunStatus
    from nanobot_core.plugins.catalogue import Catalogue

app: typer.Typer = typer.Typer(help="Run the gateway, or control the running one.")
STOP_POLL_S = 0.2
FOLLOW_POLL_S = 0.5


@app.callback(invoke_without_command=True)
def gateway(ctx: typer.Context) -> None:
    """Run the gateway, or control the running one.

    For example:

    \b
      nanobot gateway                    run it until Ctrl-C
      nanobot gateway status             show turns, channels and problems
      nanobot gateway install-service    start it at each login
    """  # noqa: D301 - a line of its own with \b keeps the lines below it as they are
    if ctx.invoked_subcommand is None:
        run(ctx)


@app.command()
def run(ctx: typer.Context) -> None:
    """Run the gateway until it is stopped.

    Example: nanobot gateway run
    """
    from nanobot_core.app.logging import configure_logging
    from nanobot_core.app.runner import GatewayRunner
    from nanobot_core.app.workspace import sync_templates
    from nanobot_core.clock import SystemClock
    from nanobot_core.config.loading import load_config
    from nanobot_core.folder import Folder

    options = options_of(ctx)
    bot = open_agent(options)
    sync_templates(Folder(bot.loaded.workspace))
    log = partial(configure_logging, level="DEBUG" if options.debug else "INFO", in_thread=True)
    log(bot.loaded)
    _warn(bot.loaded)

    def load() -> tuple[LoadedConfig, Catalogue]:
        loaded = load_config(options.config, profile=options.profile)
        _warn(loaded)
        return loaded, load_catalogue(options, loaded)

    async def work() -> None:
        runner = GatewayRunner(bot, SystemClock(), load, log, _as_arguments(options))
        ready = "gateway ready; Ctrl-C stops it"
        try:
            restarts = await runner.run(lambda: stderr().print(ready, style="dim"))
        except BaseException:
            _leave_soon(1)
            raise
        if restarts:
            _run_again()
        _leave_soon(0)

    run_async(work())


def _run_again() -> None:
    """Replace the program of this process by a new one, with the code that is installed now.

    The process id stays the same, so that what supervises the process notices nothing.
    """
    from loguru import logger

    logger.remove()  # writes what is waiting
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the command of this process


def _warn(loaded: LoadedConfig) -> None:
    from loguru import logger

    for finding in loaded.findings:
        logger.warning("{}", finding)
    if changes := changes_since_lock(loaded):
        logger.warning("{}", changes)


def _leave_soon(code: int) -> None:
    """End the process even if a task or thread of a plugin does not end; everything is stored."""
    timer = threading.Timer(EXIT_END_S, os._exit, (code,))
    timer.daemon = True
    timer.start()


@app.command()
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the state of the running gateway.

    Example: nanobot gateway status
    """
    found = gateway_status(ctx)
    if as_json:
        print_json(asdict(found))
        return
    depth, totals, usage = found.depth, found.totals, found.totals.usage
    mean_s = totals.turns_s / max(totals.turns, 1)
    print_facts(
        {
            "version": found.version,
            "process": found.pid,
            "started": _local(found.started_at),
            "state": found.state,
            "turns": {"now": found.turns, "ended": totals.turns, "failed": totals.failed_turns},
            "time": {"s per turn": f"{mean_s:.1f}", "s at most": f"{totals.slowest_turn_s:.1f}"},
            "tools": {"calls": totals.tool_calls, "failed": totals.failed_tool_calls},
            "model": {
                "calls": totals.model_calls,
                "tokens sent": f"{usage.prompt_tokens:,}",
                "received": f"{usage.completion_tokens:,}",
                "US dollars, as far as known": f"{usage.known_usd or 0:.4f}",
            },
            "waiting": {"in": depth.inbound, "out": depth.outbound, "dead": depth.dead},
            "trouble": [
                *(f"{name}: {reason}" for name, reason in found.plugins_in_trouble),
                *(f"a damaged file is kept as {file}" for file in damaged_files(home_of(ctx))),
            ],
        },
        as_json=False,
    )
    print_running(found.running)


def gateway_status(ctx: typer.Context) -> GatewayStatus:
    """Return the state of the running gateway; errors as `ControlClient.call`."""
    from nanobot_core.app.wire import from_json
    from nanobot_core.contracts.service import GatewayStatus

    return from_json(GatewayStatus, run_async(gateway_client(ctx).call("status")))


def when(instant: datetime | None) -> str:
    """Return a time for a table."""
    return _local(instant) if instant else "never"


def print_running(running: Sequence[RunStatus]) -> None:
    """Print a line for each channel and service."""
    rows = [
        (
            item.name,
            item.kind,
            item.plugin,
            item.state,
            item.restarts,
            when(item.last_contact),
            item.last_error or "",
        )
        for item in running
    ]
    if rows:
        columns = ("Name", "Kind", "Plugin", "State", "Restarts", "Last contact", "Last error")
        render_table(columns, rows)


@app.command()
def stop(ctx: typer.Context) -> None:
    """Stop the running gateway and wait until it has ended.

    Example: nanobot gateway stop
    """
    from nanobot_core.app.client import ControlClient

    loaded = read_settings(options_of(ctx))
    limit_s = loaded.settings.gateway.grace_s + KILL_RESERVE_S
    with stderr().status("waiting for turns to end"):
        run_async(_stop(ControlClient(loaded.home / "gateway"), limit_s))


async def _stop(client: ControlClient, limit_s: float) -> None:
    pid = client.pid
    with _watched(pid) as has_ended:
        await client.call("stop")
        try:
            async with asyncio.timeout(limit_s):
                # The process ends some time after its socket and its lock are gone.
                while client.pid == pid is not None or not has_ended():  # noqa: ASYNC110 - another process, which nothing here can await
                    await asyncio.sleep(STOP_POLL_S)
        except TimeoutError:
            fail(
                f"the gateway with process id {pid} still runs after {limit_s:g} seconds; "
                f"end it with kill -9 {pid}"
            )


@app.command()
def restart(ctx: typer.Context) -> None:
    """Restart the running gateway with the code and configuration that are there now.

    Turns end first. Messages that arrive meanwhile are stored and answered afterwards. If the
    configuration has an error, the gateway continues to run.

    Example: nanobot gateway restart
    """
    from nanobot_core.app.client import ControlClient

    loaded = load_settings(options_of(ctx))
    load_catalogue(options_of(ctx), loaded).refuse_missing()
    limit_s = loaded.settings.gateway.grace_s + KILL_RESERVE_S
    with stderr().status("waiting for turns to end"):
        run_async(_restart(ControlClient(loaded.home / "gateway"), limit_s))
    typer.echo("restarted")


async def _restart(client: ControlClient, limit_s: float) -> None:
    from nanobot_core.app.wire import ControlError, from_json
    from nanobot_core.contracts.service import GatewayStatus

    async def start_of() -> object:
        found = from_json(GatewayStatus, await client.call("status"))
        return found.started_at if found.ready or found.refusing else None

    before = await start_of()
    with _watched(client.pid) as has_ended:
        await client.call("restart")
        try:
            async with asyncio.timeout(limit_s):
                while not has_ended():
                    with suppress(ControlError):  # it stops or starts
                        if await start_of() not in {None, before}:
                            return
                    await asyncio.sleep(STOP_POLL_S)
        except TimeoutError:
            fail(f"the gateway is not ready after {limit_s:g} seconds; see nanobot gateway logs")
    fail("the gateway has ended; see nanobot gateway logs")


@contextmanager
def _watched(pid: int | None) -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether a process has ended; an unknown one counts as ended."""
    try:
        # The number can be reused by another process at once; a descriptor cannot.
        descriptor = os.pidfd_open(pid) if pid is not None else None
    except ProcessLookupError:
        descriptor = pid = None
    except (AttributeError, OSError):  # not Linux, or forbidden there
        descriptor = None
    try:
        yield partial(_has_ended, pid, descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _has_ended(pid: int | None, descriptor: int | None) -> bool:
    if descriptor is not None:
        return bool(select.select([descriptor], [], [], 0)[0])
    try:
        if pid is not None:
            os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return pid is None


@app.command("reload")
def reload_(ctx: typer.Context) -> None:
    """Read configuration and plugins again, and apply the changes.

    Example: nanobot gateway reload
    """
    from nanobot_core.app.client import CHANGE_LIMIT_S

    done = run_async(gateway_client(ctx).call("reload", limit_s=CHANGE_LIMIT_S))
    if not isinstance(done, dict):
        fail("the running gateway has another version; restart it")
    typer.echo(done["text"])
    if done["failed"]:
        raise typer.Exit(1)


@app.command()
def logs(
    ctx: typer.Context,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Lines to show.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new lines until Ctrl-C.")
    ] = False,
) -> None:
    """Show the end of the log.

    Example: nanobot gateway logs --lines 200 --follow
    """
    file = home_of(ctx) / "logs" / "nanobot.log"
    if not file.exists():
        fail(f"no log at '{file}' yet; the gateway writes it")
    with suppress(KeyboardInterrupt):
        for line in _tail(file, lines, follow=follow):
            typer.echo(line)


@app.command("install-service")
def install_service(
    ctx: typer.Context,
    show: Annotated[
        bool, typer.Option("--print", help="Print the file instead of writing it.")
    ] = False,
) -> None:
    """Write a systemd user unit, or a launchd agent on macOS, that runs the gateway.

    Example: nanobot gateway install-service
    """
    from nanobot_core.cli.service_file import service_file

    loaded = load_settings(options_of(ctx), lenient=True)
    file = service_file(
        Path(sys.executable),
        loaded.home,
        _as_arguments(options_of(ctx)),
        loaded.settings.gateway.grace_s,
    )
    if show:
        typer.echo(file.content, nl=False)
        return
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_text(file.content, "utf-8")
    typer.echo(f"Written: {file.path}\nStart it with: {file.start}")
    if file.environment is not None:
        typer.echo(f"For variables such as secrets, write NAME=VALUE lines to {file.environment}")


def _as_arguments(options: Options) -> list[str]:
    """Return the options before the command as arguments."""
    arguments = ["--config", str(options.config.absolute())] if options.config else []
    arguments += ["--profile", options.profile] if options.profile else []
    arguments += ["--safe"] if options.safe else []
    for plugin in options.without:
        arguments += ["--without", plugin]
    return arguments


def _local(instant: datetime) -> str:
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}"


def _tail(file: Path, lines: int, *, follow: bool) -> Iterator[str]:
    """Yield the last lines, then new ones, also after the file is rotated."""
    opened = file.open(encoding="utf-8", errors="replace")
    try:
        yield from (line.rstrip("\n") for line in deque(opened, maxlen=lines))
        begun = ""
        while follow:
            # Before the read that finds no more: nothing is added to a rotated file afterwards.
            is_rotated = _is_other(file, opened)
            if text := opened.readline():
                begun += text
                if begun.endswith("\n"):
                    yield begun.rstrip("\n")
                    begun = ""
            elif is_rotated:
                opened.close()
                opened = file.open(encoding="utf-8", errors="replace")
            else:
                time.sleep(FOLLOW_POLL_S)
    finally:
        opened.close()


def _is_other(file: Path, opened: TextIO) -> bool:
    """Whether `file` is now another file than `opened`."""
    try:
        return not os.path.samestat(file.stat(), os.fstat(opened.fileno()))
    except FileNotFoundError:
        return False
