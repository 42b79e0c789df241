"""``nanobot providers login`` and ``logout``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nanobot_core.cli.options import open_agent, options_of
from nanobot_core.cli.output import fail, printable, run_async
from nanobot_core.config.environment import environment
from nanobot_core.contracts.login import LoginFlow, ProviderLogin
from nanobot_core.sign_in import login_command

if TYPE_CHECKING:
    from nanobot_core.cli.options import Options
    from nanobot_core.providers.match import ProviderRow

_MAX_PASTED_BYTES: Final = 16_384
Name = Annotated[str, typer.Argument(help="Name of the provider, such as openai-codex.")]


def login(
    ctx: typer.Context,
    name: Name,
    device: Annotated[
        bool | None,
        typer.Option(
            "--device/--browser",
            help="Enter a code on a page of the service, or allow the access in a browser here.",
            show_default="as the service prefers",
        ),
    ] = None,
    opens: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser of this machine.")
    ] = True,
) -> None:
    """Sign in to a provider that has accounts instead of keys.

    Example: nanobot providers login github-copilot
    """
    flow: LoginFlow | None = None if device is None else "device" if device else "browser"
    account = run_async(_log_in(options_of(ctx), name, flow, TerminalPrompt(opens=opens)))
    typer.echo(f"signed in as {printable(account)}" if account else "signed in")


def logout(ctx: typer.Context, name: Name) -> None:
    """Sign out: remove the stored tokens, and revoke them if the service allows it.

    Example: nanobot providers logout github-copilot
    """
    left_to_do = run_async(_log_out(options_of(ctx), name))
    typer.echo("signed out")
    if left_to_do:
        typer.echo(printable(left_to_do))


def describe_sign_in(row: ProviderRow) -> str:
    """Return whether a provider can be used, for one with a sign-in."""
    sign_in = row.sign_in
    if sign_in is None:
        return f"no, run {login_command(row.spec.name)}"
    if sign_in.problem:
        return f"no, {sign_in.problem}; then run {login_command(row.spec.name)}"
    account = f" as {sign_in.account}" if sign_in.account else ""
    until = f" until {sign_in.ends_at.astimezone():%Y-%m-%d %H:%M}" if sign_in.ends_at else ""
    return f"yes, signed in{account}{until}"


class TerminalPrompt:
    """The person at the terminal; see `LoginPrompt`.

    Args:
        opens: open addresses in a browser of this machine.
    """

    def __init__(self, *, opens: bool) -> None:
        self._opens = opens
        self._has_input = True

    async def show(self, address: str, *, code: str = "", limit_s: float) -> None:
        """Print the address and the code on stderr, and open the address."""
        shown = printable(address)
        if code:
            text = f"Open this address in a browser:\n\n  {shown}\n\nand enter this code there:"
            text += f"\n\n  {printable(code)}\n\nDo not share this code."
        else:
            text = f"Open this address in a browser and allow the access:\n\n  {shown}\n"
            if sys.stdin.isatty():
                text += "\nIf that browser runs on another machine, paste the address of the page "
                text += "that it ends at, which it cannot show, and press Enter."
        await self.note(f"{text}\nWaiting for {limit_s / 60:.0f} minutes at most; Ctrl-C stops.")
        if self._opens and _has_browser():
            # Without the return value: the address is printed in any case.
            await asyncio.to_thread(typer.launch, address)

    async def scan(self, text: str) -> None:
        """Print a QR code on stderr, or its text if the library is missing."""
        try:
            import segno
        except ImportError:
            await self.note(f"(`pip install segno` shows this text as a QR code) {printable(text)}")
        else:
            segno.make(text, micro=False).terminal(out=sys.stderr, compact=True)

    async def note(self, text: str) -> None:
        """Print a line on stderr."""
        typer.echo(text, err=True)

    async def pasted(self) -> str:
        """Return the next line on stdin; wait for ever if there can be none."""
        while self._has_input:
            async with _readable_stdin() as is_readable:
                if not is_readable:
                    break
                # A terminal gives whole lines.
                data = os.read(sys.stdin.fileno(), _MAX_PASTED_BYTES)
            self._has_input = bool(data)
            if text := data.decode("utf-8", "replace").strip():
                return text
        await asyncio.Event().wait()
        raise AssertionError  # the event is never set


@asynccontextmanager
async def _readable_stdin() -> AsyncIterator[bool]:
    """Wait until stdin can be read; yield whether that is possible."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(sys.stdin.fileno(), ready.set)
    except (OSError, ValueError):  # a file, or closed
        yield False
        return
    try:
        await ready.wait()
        yield True
    finally:
        loop.remove_reader(sys.stdin.fileno())


def _has_browser() -> bool:
    """Whether a browser of this machine can show a page to the person."""
    if any(environment(("SSH_CONNECTION",)).values()):
        return False
    displays = environment(("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.platform == "darwin" or any(displays.values())


async def _log_in(
    options: Options, name: str, flow: LoginFlow | None, prompt: TerminalPrompt
) -> str:
    async with _provider_login(options, name) as found:
        return await found.log_in(prompt, flow)


async def _log_out(options: Options, name: str) -> str:
    async with _provider_login(options, name) as found:
        return await found.log_out()


@asynccontextmanager
async def _provider_login(options: Options, name: str) -> AsyncIterator[ProviderLogin]:
    """Yield the sign-in of a provider, and stop its plugin afterwards."""
    agent = open_agent(options)
    rows = {row.spec.name: row for row in agent.models.rows()}
    row = rows.get(name.replace("-", "_")) or rows.get(name)
    if row is None or not row.spec.login:
        known = ", ".join(each.replace("_", "-") for each, row in rows.items() if row.spec.login)
        problem = "has no sign-in" if row else "is not a provider of an enabled plugin"
        fail(f"'{name}' {problem}; providers with a sign-in: {known or 'none'}", 2)
    try:
        yield await agent.models.provider_login(row)
    finally:
        await agent.plugins.stop()
