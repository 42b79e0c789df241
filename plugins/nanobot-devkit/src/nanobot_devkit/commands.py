"""``nanobot plugins new``, ``build`` and ``check``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from nanobot_core import JsonObject, examine_plugin, manifest_to_json
from nanobot_devkit.findings import check_plugin
from nanobot_devkit.location import locate_plugin
from nanobot_devkit.naming import NameRefusedError, parse_name
from nanobot_devkit.scaffold import MANIFEST_FILE, Kind, render_manifest, write_package

Target = Annotated[str, typer.Argument(metavar="PATH|ID", help="Folder, file or id of the plugin.")]


def new(
    name: Annotated[str, typer.Argument(help="Id of the plugin: letters, digits and hyphens.")],
    kind: Annotated[Kind, typer.Option("--kind", "-k", help="What the plugin contributes.")],
    path: Annotated[
        Path, typer.Option("--path", metavar="DIR", help="Folder to write the package into.")
    ] = Path(),
) -> None:
    """Write a new plugin package that passes its tests.

    Example: nanobot plugins new weather --kind tool
    """
    try:
        names = parse_name(name)
        folder = write_package(names, kind, path)
    except NameRefusedError as error:
        _fail(str(error), 2)
    except FileExistsError as error:
        _fail(f"'{error.args[0]}' exists already; choose another name or --path", 2)
    except NotADirectoryError as error:
        _fail(f"'{error.args[0]}' is not a folder; create it first", 2)
    typer.echo(f"Wrote {folder}. Next:\n")
    typer.echo(f"  python3 -m pip install -e {folder}")
    typer.echo(f"  python3 -m pip install anyio pytest && python3 -m pytest {folder}")
    typer.echo(f"  nanobot plugins check {names.id}")


def build(
    target: Target = ".",
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 when the manifest is stale.")
    ] = False,
) -> None:
    """Write a plugin's manifest into its working copy, derived from its code in a child process.

    Example: nanobot plugins build ./nanobot-weather
    """
    plugin = locate_plugin(target)
    if plugin.code.is_file():
        typer.echo(f"{plugin.id} is a single module: it needs no manifest, nanobot describes it")
        return
    file = plugin.code / MANIFEST_FILE
    manifest = manifest_to_json(examine_plugin(plugin.id))
    if _has(file, manifest):
        typer.echo(f"{file} is up to date")
    elif check:
        _fail(f"{file} is stale; run nanobot plugins build {plugin.id}", 1)
    elif plugin.project is None:
        place = f"{plugin.id} is installed in {plugin.code}, which is not a working copy"
        _fail(f"{place}; first run: python3 -m pip install -e PATH, the folder of its source", 1)
    else:
        new = file.with_suffix(".new")
        new.write_text(render_manifest(manifest), encoding="utf-8")
        new.replace(file)
        typer.echo(f"Wrote {file}")


def check(
    target: Target = ".",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Report problems that a plugin should not be published with; exit 1 if there are any.

    Example: nanobot plugins check weather
    """
    plugin = locate_plugin(target)
    findings = check_plugin(plugin)
    if as_json:
        data = {"plugin": plugin.id, "findings": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
    elif not findings:
        typer.echo(f"{plugin.id}: no problems found")
        typer.echo(f"To test how it behaves: python3 -m pytest --nanobot-plugin {plugin.target}")
    else:
        for finding in findings:
            typer.echo(str(finding))
    if findings:
        raise typer.Exit(1)


def _has(file: Path, manifest: JsonObject) -> bool:
    """Whether a file contains a manifest, in any layout."""
    try:
        found: object = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    wanted: object = json.loads(json.dumps(manifest))
    return found == wanted


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(code)
