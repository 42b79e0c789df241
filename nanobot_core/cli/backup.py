"""``nanobot backup`` and ``nanobot restore``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.options import AsJson, load_catalogue, options_of, read_settings
from nanobot_core.cli.output import print_json, printable, warn
from nanobot_core.cli.progress import Bar
from nanobot_core.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core.moving.backup import Manifest, Secret

_PARTS = ("gateway", "media", "plugins", "workspace")
_SHOWN = 20


def backup(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, .tar.gz.")],
    secrets: Annotated[
        Path | None,
        typer.Option("--secrets", metavar="FILE", help="Write the secrets to a second file."),
    ] = None,
    *,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write configuration, workspace, sessions, memory, jobs and plugin data to one file.

    The gateway may run meanwhile. Keys, passwords and sign-ins are left out and listed; --secrets
    writes them to a second file. Neither file is encrypted, and both are readable by you only.

    Example: nanobot backup home.tar.gz --secrets secrets.tar.gz
    """
    from nanobot_core.app.checks import find_problems
    from nanobot_core.moving.backup import write_backup

    options = options_of(ctx)
    loaded = read_settings(options)
    catalogue = load_catalogue(options, loaded)
    find_problems(loaded, catalogue)  # teaches the redactor what plugins declare as secret
    with Bar(_PARTS, shown=not as_json) as bar:
        done = write_backup(
            *(loaded, catalogue, SystemClock(), file),
            secrets_file=secrets,
            replace=replace,
            progress=lambda name: bar.step(name) if name in _PARTS else None,
        )
    if as_json:
        print_json(
            {
                "file": str(file),
                "bytes": done.size,
                "members": len(done.manifest.members),
                "secrets_file": str(secrets) if secrets else None,
                "secrets": [each.where for each in done.manifest.secrets],
                "left_out": [
                    {"path": str(each.path), "reason": each.reason} for each in done.left_out
                ],
            }
        )
        return
    size = f"{done.size / 1_000_000:,.1f} MB"
    typer.echo(f"{file}: {len(done.manifest.members):,} files and folders, {size}.")
    if found := done.manifest.secrets:
        where = f"in {secrets}" if secrets else "left out; --secrets FILE writes them to a file"
        typer.echo(f"Secrets ({len(found)}) are {where}:")
        _list(each.where for each in found)
    if done.left_out:
        warn(f"not in the backup ({len(done.left_out)}):")
        _list(f"{each.path}: {each.reason}" for each in done.left_out)


def restore(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What nanobot backup wrote.")],
    secrets: Annotated[
        Path | None,
        typer.Option("--secrets", metavar="FILE", help="The file with the secrets."),
    ] = None,
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a home in use, which is kept beside it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a home from a backup, completely or not at all.

    The backup is checked first. Restore only your own backups: a configuration can name programs
    to run.

    Example: nanobot restore home.tar.gz --secrets secrets.tar.gz
    """
    from nanobot_core.config.environment import process_environment, resolve_home
    from nanobot_core.moving.place import former_name, is_blank
    from nanobot_core.moving.restore import restore as restore_home

    home = resolve_home(process_environment())
    former = None if is_blank(home) else former_name(home)
    with Bar(("restoring",), shown=not as_json) as bar:
        bar.step("restoring")
        manifest = restore_home(file, home, secrets_file=secrets, replace=replace)
    missing = manifest.secrets if secrets is None else ()
    options = options_of(ctx)
    loaded = read_settings(options)
    installed = load_catalogue(options, loaded).selections
    missing_plugins = manifest.plugins.keys() - installed.keys()
    packages = sorted({manifest.plugins[each] for each in missing_plugins} - {""})
    if as_json:
        print_json(
            {
                "home": str(home),
                "former_home": str(former) if former else None,
                "made_at": manifest.made_at.isoformat(),
                "version": manifest.version,
                "members": len(manifest.members),
                "secrets": [each.model_dump() for each in missing],
                "packages": packages,
                "workspace": str(loaded.workspace),
            }
        )
        return
    _show_place(home, former, manifest)
    _show_missing(missing, packages)
    if loaded.workspace != home / "workspace":
        typer.echo(
            f"\nThe configuration names the workspace {loaded.workspace}; the restored files are "
            f"in {home / 'workspace'}. Move them there, or change agents.defaults.workspace."
        )
    typer.echo("\nNext: nanobot doctor, then nanobot gateway.")


def _show_place(home: Path, former: Path | None, manifest: Manifest) -> None:
    made_at = f"{manifest.made_at:%Y-%m-%d %H:%M %Z}"
    typer.echo(f"Restored {home} as it was on {made_at} (nanobot {manifest.version}).")
    if former is not None:
        typer.echo(f"The folder that was there is {former}.")


def _show_missing(missing: Iterable[Secret], packages: list[str]) -> None:
    if variables := [each for each in missing if each.variable]:
        typer.echo("\nSet these variables, or write the values into config.yaml:")
        _list(f"{each.variable}  ({each.where})" for each in variables)
    if files := [each.where for each in missing if not each.variable]:
        typer.echo("\nNot in the backup; sign in again, or create them:")
        _list(files)
    if packages:
        typer.echo(f"\nTo install: nanobot plugins add {' '.join(packages)}")


def _list(lines: Iterable[str]) -> None:
    shown = list(lines)
    for line in shown[:_SHOWN]:
        typer.echo(f"  {printable(line)}")
    if len(shown) > _SHOWN:
        typer.echo(f"  and {len(shown) - _SHOWN:,} more; --json lists all")
