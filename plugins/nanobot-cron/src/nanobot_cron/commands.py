"""``nanobot cron``: each command is sent to the running gateway as the slash command ``/cron``."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from zoneinfo import ZoneInfo

import typer

from nanobot_core import shorten

if TYPE_CHECKING:
    from nanobot_core import CommandLine, JsonObject

app: typer.Typer = typer.Typer(
    help="Show and change what the agent does at a time, at intervals or on events.",
    no_args_is_help=True,
    epilog='Example:\n\n\b\n  nanobot cron add "Say good morning" --cron "0 7 * * mon-fri"',
)
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JobId: TypeAlias = Annotated[str, typer.Argument(help="Id of a job, as 'list' prints it.")]
Message: TypeAlias = Annotated[
    str, typer.Argument(help="The task, as you would write it to the agent.")
]
At: TypeAlias = Annotated[
    str | None, typer.Option(help="Once: a time such as 2026-03-01T09:00, or +20m from now.")
]
Every: TypeAlias = Annotated[
    str | None, typer.Option(help="At an interval: seconds, or 30m, 2h, 1d.")
]
CronExpression: TypeAlias = Annotated[
    str | None, typer.Option(help="By five fields, such as '0 7 * * mon-fri', or @daily.")
]
Event: TypeAlias = Annotated[
    str | None, typer.Option(help="On an event, such as file, message or webhook.")
]
EventOption: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="KEY=VALUE of the event; can be repeated.")
]
Zone: TypeAlias = Annotated[
    str | None, typer.Option(help="IANA time zone; by default the configured one.")
]
Name: TypeAlias = Annotated[str, typer.Option(help="A few words for lists.")]
Recipient: TypeAlias = Annotated[
    str,
    typer.Option(help="CHANNEL:CHAT that gets the answers; by default the owner's private chat."),
]
Deliver: TypeAlias = Annotated[
    str, typer.Option(help="Send answers always, when_notable or never.")
]
AfterPause: TypeAlias = Annotated[
    str, typer.Option(help="After a pause, run once or skip what was missed.")
]
Session: TypeAlias = Annotated[
    str, typer.Option(help="Conversation of the runs; by default one of the job's own.")
]
_COLUMNS = ("id", "when", "next", "last", "chat", "name")
_MAX_CELL = 44


@app.command("list")
def list_jobs(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List all jobs, those of plugins last.

    Example: nanobot cron list
    """
    found = _ask(ctx, "list")
    jobs: list[dict[str, Any]] = found["jobs"]
    if as_json:
        _print_json(jobs)
    elif jobs:
        _print_table([_row(job, ZoneInfo(found["timezone"])) for job in jobs])
    else:
        typer.echo("There are no jobs.", err=True)


@app.command()
def add(
    ctx: typer.Context,
    message: Message,
    *,
    at: At = None,
    every: Every = None,
    cron: CronExpression = None,
    on: Event = None,
    option: EventOption = None,
    tz: Zone = None,
    name: Name = "",
    to: Recipient = "",
    deliver: Deliver = "always",
    missed: AfterPause = "once",
    session: Session = "",
    as_json: AsJson = False,
) -> None:
    """Add a job.

    Example: nanobot cron add "Say good morning" --cron "0 7 * * mon-fri" --to telegram:42
    """
    from nanobot_cron.words import WordsInvalid, read_options, read_seconds

    try:
        fields: JsonObject = {
            "message": message,
            "at": at,
            "every_seconds": None if every is None else read_seconds(every),
            "cron_expr": cron,
            "on": on,
            "options": read_options(option or ()),
            "tz": tz,
            "name": name,
            "to": to,
            "deliver": deliver,
            "missed": missed,
            "session": session,
        }
    except WordsInvalid as error:
        raise typer.BadParameter(str(error)) from error
    _print(_ask(ctx, "add", json.dumps(fields)), as_json)


def _add_change(verb: str, summary: str, example: str) -> None:
    """Add a command that changes or runs one job."""

    @app.command(verb, help=f"{summary}\n\nExample: nanobot cron {verb} {example}")
    def change(ctx: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
        _print(_ask(ctx, verb, _word(job_id)), as_json)


_add_change("remove", "Remove a job.", "k3x9")
_add_change("enable", "Switch a job on again.", "k3x9")
_add_change("disable", "Switch a job off without removing it, also one of a plugin.", "dream")
_add_change("run", "Run a job now; without a gateway, here, and print the answer.", "k3x9")


@app.command()
def history(ctx: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """Show the last runs of a job, newest first.

    Example: nanobot cron history k3x9
    """
    found = _ask(ctx, "history", _word(job_id))
    if as_json:
        _print_json(found["runs"])
    else:
        _write(found["text"])


def _ask(ctx: typer.Context, verb: str, rest: str = "") -> dict[str, Any]:
    """Return the answer to a slash command; exit with 1 if it is an error."""
    line: CommandLine = ctx.obj
    reply = line.slash(f"/cron {verb} --json {rest}".rstrip())
    try:
        found: dict[str, Any] = json.loads(reply)
    except ValueError:  # a message in words: the plugin does not work, for example
        found = {"error": reply}
    if "error" in found:
        _write(f"Error: {found['error']}", err=True)
        raise typer.Exit(1)
    return found


def _word(text: str) -> str:
    """Return an argument as one word of a slash command."""
    if not text.strip() or '"' in text or "\\" in text:
        msg = "such an id does not exist; nanobot cron list shows the ids"
        raise typer.BadParameter(msg)
    return f'"{text}"'


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _print_json(found)
    else:
        _write(found["text"])


def _write(text: str, *, err: bool = False) -> None:
    """Print text without control characters, which the names of guests' jobs may contain."""
    typer.echo("".join(each for each in text if each.isprintable() or each == "\n"), err=err)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _row(job: dict[str, Any], zone: ZoneInfo) -> list[str]:
    last = job["last"]
    state = "running" if job["running"] else last and last["status"]
    plugin = f"(plugin {job['plugin']}) " if job["plugin"] else ""
    chat = job.get("chat", "-") if job.get("deliver") != "never" else "-"
    due = _local(job["next"], zone) if job["enabled"] else "disabled"
    return [job["id"], job["when"], due, state or "-", chat, f"{plugin}{job['name']}"]


def _local(text: str | None, zone: ZoneInfo) -> str:
    return f"{datetime.fromisoformat(text).astimezone(zone):%Y-%m-%d %H:%M}" if text else "-"


def _print_table(rows: list[list[str]]) -> None:
    """Print rows in columns; the last one is cut at the width of the terminal."""
    rows = [[name.upper() for name in _COLUMNS], *rows]
    cells = [[shorten(cell, _MAX_CELL) for cell in row[:-1]] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = max(shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths), 20)
    for row, first in zip(rows, cells, strict=True):
        padded = [cell.ljust(width) for cell, width in zip(first, widths, strict=True)]
        _write("  ".join([*padded, shorten(row[-1], room)]).rstrip())
