"""``nanobot onboard --from-nanobot-ai``: shows what a move will do, asks, and does it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nanobot_core.cli.options import Options, load_catalogue, read_settings
from nanobot_core.cli.output import fail, print_json, printable, render_table, stdout, warn
from nanobot_core.cli.progress import Bar
from nanobot_core.clock import SystemClock
from nanobot_core.config.environment import expand_home, named_config_path, process_environment
from nanobot_core.moving.original import OriginalHome
from nanobot_core.moving.place import require_place
from nanobot_core.moving.plan import REPORT, move, moved_from, plan_move, report
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core.moving.original import Finding
    from nanobot_core.moving.plan import Move

_COPYING = "copying"


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """What the command line says about a move.

    Attributes:
        source: the home of nanobot-ai; ``None`` if the command line names none.
        owners: sender ids that may control the agent.
        replace: a home in use may be replaced.
        dry_run: only show what would be done.
        yes: do not ask.
        as_json: print one JSON object.
    """

    source: Path | None
    owners: tuple[str, ...] = ()
    replace: bool = False
    dry_run: bool = False
    yes: bool = False
    as_json: bool = False


def move_in(options: Options, wanted: MoveOptions) -> None:
    """Move a home of nanobot-ai to nanobot's folder.

    Raises:
        MovingError: that is not possible; nothing has changed.
        OSError: the new home cannot be written; nothing has changed.
    """
    source = wanted.source
    if source is None:
        fail("--owner, --replace, --dry-run and --json belong to --from-nanobot-ai PATH", 2)
    if named_config_path(options.config, process_environment()) is not None:
        fail("a move writes a whole home; leave out --config and NANOBOT_CONFIG", 2)
    loaded = read_settings(options)
    home = loaded.home
    if not wanted.replace and (done := _is_done(home, source)):
        _show_done(home, done, as_json=wanted.as_json)
        return
    if not wanted.dry_run:
        require_place(home, replace=wanted.replace)
    original = OriginalHome(source)
    plan = plan_move(
        original, home, owners=wanted.owners, catalogue=load_catalogue(options, loaded)
    )
    if not wanted.as_json:
        _show_plan(plan)
    if wanted.dry_run:
        if wanted.as_json:
            print_json({"status": "planned", **report(plan)})
        return
    if not wanted.yes:
        if wanted.as_json or not sys.stdin.isatty():
            fail("add --yes to do this, or --dry-run to see it only", 2)
        typer.confirm("\nMove in?", default=False, abort=True)
    with Bar((_COPYING,), shown=not wanted.as_json) as bar:
        bar.step(_COPYING)
        failed = move(plan, SystemClock(), replace=wanted.replace)
    if wanted.as_json:
        failures = [asdict(each) for each in failed]
        print_json({"status": "moved", **report(plan), "failed": failures})
    else:
        _show_result(plan, failed)
    if failed:
        raise typer.Exit(1)


def _is_done(home: Path, source: Path) -> str:
    """Return when `source` was moved to `home`; empty if it was not."""
    found = moved_from(home)
    source = expand_home(source).absolute()
    folder = (source.parent if source.is_file() else source).resolve()
    return found[1] if found and folder in (found[0].resolve(), home.resolve()) else ""


def _show_done(home: Path, when: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"status": "already moved", "home": str(home), "moved_at": when})
        return
    typer.echo(f"This home was moved in at {when}; its report is {home / REPORT}.")
    typer.echo("Nothing was changed. Add --replace to move again from the beginning.")


def _show_plan(plan: Move) -> None:
    typer.echo(f"From  {plan.original.path}  (stays unchanged)")
    typer.echo(f"To    {plan.home}")
    if plan.former is not None:
        typer.echo(f"      The folder that is there becomes {plan.former}.")
    typer.echo("")
    rows = [
        (part.what, part.source, part.target, extent.files, _size(extent.size))
        for part, extent in plan.parts
    ]
    if plan.original.config is not None and not plan.original.config_problem:
        rows.insert(0, ("configuration", plan.original.config, Path("config.yaml"), 1, "converted"))
    if count := sum(map(len, plan.approved.values())):
        place = Path("gateway", "pairing.json")
        source = plan.original.path / "pairing.json"
        rows.insert(1, ("approved senders", source, place, 1, f"{count} converted"))
    render_table(("What", "From", "To", "Files", "Size"), rows)
    if plan.owners:
        typer.echo(f"\nOwner, who may control the agent from a chat: {', '.join(plan.owners)}")
    if plan.converted.unused:
        count = len(plan.converted.unused)
        typer.echo(f"\nLeft out: {count} sections that were never filled in.")
    if plan.findings:
        typer.echo("\nNot moved, or in part:\n")
        _show_findings(plan.findings)
    if plan.packages:
        typer.echo(f"\nTo install: nanobot plugins add {' '.join(plan.packages)}")


def _show_findings(findings: Iterable[Finding]) -> None:
    for each in findings:
        kept = f" (a copy is in {each.kept})" if each.kept else ""
        remedy = f"; {each.remedy}" if each.remedy else ""
        line = printable(f"  {each.where}: {each.reason}{remedy}{kept}")
        stdout().print(line.replace("\n", " "), markup=False, soft_wrap=True)


def _show_result(plan: Move, failed: list[Finding]) -> None:
    typer.echo(f"\nMoved in. The report is {plan.home / REPORT}.")
    if plan.former is not None:
        typer.echo(f"The folder that was there is {plan.former}.")
    if failed:
        warn(f"{len(failed)} files could not be copied:")
        _show_findings(failed)
    typer.echo("\nStop nanobot-ai before you start this gateway: both would answer.")
    typer.echo("Next: nanobot config check, then nanobot gateway.")


def _size(count: int) -> str:
    return f"{count / 1_000_000:,.1f} MB" if count >= 100_000 else f"{count / 1000:,.1f} kB"
