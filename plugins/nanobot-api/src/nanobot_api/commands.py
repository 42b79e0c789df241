"""``nanobot api``: the keys of programs. A running gateway notices changes at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer
from pydantic import ValidationError

from nanobot_api.keys import AGENT, PLAIN, ApiKey, KeyStore
from nanobot_core import NanobotError

if TYPE_CHECKING:
    from nanobot_core import CommandLine

ResultT = TypeVar("ResultT")
app: typer.Typer = typer.Typer(help="Manage the keys of programs.", no_args_is_help=True)
keys: typer.Typer = typer.Typer(
    help="Add, list and revoke keys.",
    no_args_is_help=True,
    epilog="Example:\n\n\b\n  nanobot api keys add open-webui",
)
app.add_typer(keys, name="keys")
Name: TypeAlias = Annotated[
    str,
    typer.Argument(help="Name of the program: small letters, digits, '-' and '_', at most 32."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Rights(StrEnum):
    """Whose rights the agent has when it works for a program."""

    guest = "guest"
    owner = "owner"


@keys.command()
def add(
    ctx: typer.Context,
    name: Name,
    *,
    rights: Annotated[Rights, typer.Option(help="Rights of the agent's tools.")] = Rights.guest,
    allow: Annotated[
        list[str] | None, typer.Option(help="Pattern of tools that may be used; can be repeated.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option(help="Pattern of tools that may not; can be repeated.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Pattern of models, such as 'openai/*'; by default {AGENT} and {PLAIN}."
        ),
    ] = None,
    requests_per_minute: Annotated[
        int, typer.Option(min=0, help="Requests a minute; 0 for any number.")
    ] = 60,
    tokens_per_day: Annotated[
        int, typer.Option(min=0, help="Tokens a day in UTC; 0 for any number.")
    ] = 0,
    user_names_session: Annotated[
        bool, typer.Option(help="The field 'user' of a request names a session.")
    ] = False,
) -> None:
    """Add a key and print it. It cannot be shown again.

    Example: nanobot api keys add open-webui --tokens-per-day 500000
    """
    try:
        key = ApiKey(
            name=name,
            authority=rights.value,
            allow=tuple(allow or ("*",)),
            deny=tuple(deny or ()),
            models=tuple(model or (AGENT, PLAIN)),
            requests_per_minute=requests_per_minute or None,
            tokens_per_day=tokens_per_day or None,
            user_names_session=user_names_session,
            created_at=datetime.now(UTC),
        )
    except ValidationError as error:
        [found, *_] = error.errors()
        raise typer.BadParameter(f"{found['loc'][0]}: {found['msg']}") from error
    secret = _run(ctx, lambda store: store.add(key))
    typer.echo(f"The key of '{name}', which is not stored and not shown again:", err=True)
    typer.echo(secret)


@keys.command("list")
def list_keys(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List all keys with their rights and limits, without the keys themselves.

    Example: nanobot api keys list
    """
    found = _run(ctx, KeyStore.all)
    if as_json:
        typer.echo(json.dumps([key.model_dump(mode="json") for key in found], indent=2))
    elif not found:
        typer.echo("There are no keys; 'nanobot api keys add NAME' adds one.", err=True)
    else:
        for key in found:
            typer.echo(_render(key))


@keys.command()
def revoke(ctx: typer.Context, name: Name) -> None:
    """Revoke a key; requests under way end within a second.

    Example: nanobot api keys revoke open-webui
    """
    if not _run(ctx, lambda store: store.revoke(name)):
        typer.echo(f"There is no key '{name}'; see 'nanobot api keys list'.", err=True)
        raise typer.Exit(1)
    typer.echo(f"The key '{name}' is revoked.")


def _render(key: ApiKey) -> str:
    limits = [
        f"{key.requests_per_minute or 'any number of'} requests a minute",
        f"{key.tokens_per_day or 'any number of'} tokens a day",
    ]
    denied = f" except {', '.join(key.deny)}" if key.deny else ""
    sessions = "; 'user' names a session" if key.user_names_session else ""
    return (
        f"{key.name}: rights of {'the owner' if key.authority == 'owner' else 'a guest'}; tools "
        f"{', '.join(key.allow)}{denied}; models {', '.join(key.models)}; {', '.join(limits)}"
        f"{sessions}; added {key.created_at:%Y-%m-%d}"
    )


def _run(ctx: typer.Context, work: Callable[[KeyStore], ResultT]) -> ResultT:
    """Return what `work` does with the keys; exit with 1 if it fails."""
    line: CommandLine = ctx.obj

    async def with_store() -> ResultT:
        async with line() as plugin:
            return await asyncio.to_thread(work, plugin.shared(KeyStore))

    try:
        return asyncio.run(with_store())
    except NanobotError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
