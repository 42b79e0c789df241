"""``nanobot config``: show, change and check the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.options import (
    AsJson,
    Options,
    load_catalogue,
    load_settings,
    options_of,
    read_settings,
)
from nanobot_core.cli.output import fail, print_error, print_json, stderr, stdout

if TYPE_CHECKING:
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.errors import ConfigProblem
    from nanobot_core.messages import JsonObject, JsonValue

app: typer.Typer = typer.Typer(
    name="config",
    help="Show, change and check the configuration.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
Key = Annotated[str, typer.Argument(help="Key path, such as agents.defaults.model.")]
_FALLBACK_EDITOR = "vi"


@app.command()
def show(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the configuration that applies, secrets replaced.

    Example: nanobot config show
    """
    loaded = load_settings(options_of(ctx), lenient=True)
    if as_json:
        print_json(loaded.masked())
        return
    stderr().print(f"from {loaded.path or 'no file'}", markup=False, soft_wrap=True)
    _print_yaml(loaded.masked())


@app.command()
def get(ctx: typer.Context, key: Key, as_json: AsJson = False) -> None:
    """Print one value, a secret replaced; defaults of the core included.

    Example: nanobot config get agents.defaults.model
    """
    from nanobot_core.config.secrets import mask_tree
    from nanobot_core.config.tree import overlay, parse_path, resolve

    loaded = load_settings(options_of(ctx), lenient=True)
    values = mask_tree(loaded.settings.model_dump(mode="json"), loaded.redactor)
    overlay(values, loaded.masked(), {}, {})
    found, value = resolve(values, parse_path(key))
    if len(found) < len(parse_path(key)):
        fail(f"there is no value at '{key}'; see nanobot config show")
    if as_json:
        print_json(value)
    elif isinstance(value, dict | list):
        _print_yaml(value)
    else:
        text = "" if value is None else str(value).lower() if isinstance(value, bool) else value
        stdout().print(str(text), markup=False, soft_wrap=True)


@app.command("set")
def set_(
    ctx: typer.Context,
    key: Key,
    value: Annotated[str, typer.Argument(help="A scalar, [a, b] or {a: b}.")],
) -> None:
    """Change one value in the file, comments kept. A value that does not fit is refused.

    Example: nanobot config set agents.defaults.model openrouter/some-model
    """
    from nanobot_core.config.editing import set_value
    from nanobot_core.config.source import parse_value
    from nanobot_core.config.tree import fold

    options = options_of(ctx)
    path = config_file(options)
    parsed = parse_value(value)
    loaded, findings = _check(options, {key: parsed})
    concerned = [found for found in findings if _is_within(fold(found.path), fold(key))]
    wrong = [found for found in concerned if found.level != "warning" or found in loaded.findings]
    if wrong:
        fail("\n".join(map(str, wrong)))
    set_value(path, key, parsed)
    _warn(concerned)
    stderr().print(f"Changed {path}.", markup=False, soft_wrap=True)


def _is_within(path: str, key: str) -> bool:
    """Whether a finding at `path` is about what is set at `key`, or about a section around it."""
    return f"{path}.".startswith((f"{key}.", f"{key}[")) or f"{key}.".startswith(f"{path}.")


@app.command()
def check(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check the core's part and the sections of all enabled plugins; exit 1 on errors.

    Of plugins only the settings models are imported; nothing is started.

    Example: nanobot config check
    """
    _show_check(options_of(ctx), as_json=as_json)


@app.command()
def schema(ctx: typer.Context) -> None:
    """Print the JSON Schema of the file, sections of installed plugins included, for editors.

    Example: nanobot config schema > nanobot.schema.json
    """
    from pydantic.json_schema import models_json_schema

    from nanobot_core.config.models import Settings

    options = options_of(ctx)
    _, definitions = models_json_schema([(Settings, "validation")], by_alias=False)
    root: JsonObject = {**definitions["$defs"].pop("Settings"), **definitions}
    catalogue = load_catalogue(options, read_settings(options))
    for selection in catalogue.selections.values():
        manifest = selection.plugin.manifest
        for section in manifest.settings if manifest else ():
            _insert(root, section.path, section.schema)
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **root})


@app.command()
def edit(ctx: typer.Context) -> None:
    """Open the file in $VISUAL or $EDITOR, and check it afterwards.

    Example: nanobot config edit
    """
    import shlex
    import subprocess

    from nanobot_core.config.environment import environment

    options = options_of(ctx)
    path = config_file(options)
    if not path.exists():
        fail(f"there is no configuration at {path}; run nanobot onboard")
    found = environment(["VISUAL", "EDITOR"])
    editor = found.get("VISUAL") or found.get("EDITOR") or _FALLBACK_EDITOR
    try:
        status = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except OSError as error:
        fail(f"cannot start the editor '{editor}' ({error.strerror}); set EDITOR")
    if status:
        fail(f"the editor '{editor}' ended with status {status}")
    _show_check(options, as_json=False)


@app.command()
def migrate(ctx: typer.Context) -> None:
    """Write a JSON configuration as YAML beside it; the old file stays.

    Example: nanobot config migrate
    """
    from nanobot_core.config.editing import migrate_json_to_yaml

    path = config_file(options_of(ctx))
    if path.suffix.lower() != ".json":
        fail(f"{path} is not a JSON file, so it needs no migration")
    if not path.exists():
        fail(f"there is no configuration at {path}; run nanobot onboard")
    target, warnings = migrate_json_to_yaml(path)
    _warn(warnings)
    stderr().print(f"Wrote {target}; {path.name} is unchanged.", markup=False, soft_wrap=True)


def config_file(options: Options) -> Path:
    """Return the file that commands change, whether or not it exists."""
    from nanobot_core.config.environment import (
        process_environment,
        resolve_config_path,
        resolve_home,
    )

    environ = process_environment()
    return resolve_config_path(options.config, environ, resolve_home(environ))


def _check(
    options: Options, overrides: Mapping[str, JsonValue] | None = None
) -> tuple[LoadedConfig, list[ConfigProblem]]:
    """Return what is valid of the configuration, and all findings about it."""
    from nanobot_core.app.checks import find_problems

    loaded = read_settings(options, overrides)
    catalogue = load_catalogue(options, loaded)
    # Plugins without a manifest are described by a child process, which is not this one.
    return loaded, find_problems(loaded, catalogue)


def _show_check(options: Options, *, as_json: bool) -> None:
    loaded, findings = _check(options)
    problems = [found for found in findings if found.level != "warning"]
    warnings = [found for found in findings if found.level == "warning"]
    where = str(loaded.path) if loaded.path else None
    if as_json:
        print_json(
            {
                "file": where,
                "problems": list(map(asdict, problems)),
                "warnings": list(map(asdict, warnings)),
            }
        )
    else:
        _warn(warnings)
        for problem in problems:
            print_error(str(problem))
        if not problems:
            count = f"{len(warnings)} warnings" if len(warnings) > 1 else "one warning"
            verdict = f"valid, with {count}" if warnings else "valid"
            file = where or "there is no file; the defaults"
            stdout().print(f"{file}: {verdict}", markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


def _warn(findings: Iterable[ConfigProblem]) -> None:
    for found in findings:
        stderr().print(f"Warning: {found}", markup=False, soft_wrap=True)


def _print_yaml(value: JsonValue) -> None:
    import yaml

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True) if value else ""
    stdout().print(text.rstrip(), markup=False, soft_wrap=True)


def _insert(root: JsonObject, path: str, found: JsonObject) -> None:
    """Put a plugin's schema into that of the whole file."""
    node = root
    *outer, last = path.split(".")
    for step in outer:
        node = _properties_of(root, node).setdefault(step, {"type": "object"})
    # With an id of its own, references within the plugin's schema stay within it.
    _properties_of(root, node)[last] = {"$id": f"urn:nanobot:{path}", **_in_snake_case(found)}


def _properties_of(root: JsonObject, node: JsonObject) -> dict[str, JsonObject]:
    reference = node.get("$ref")
    if isinstance(reference, str):
        node = root["$defs"][reference.rpartition("/")[2]]  # type: ignore[call-overload,index,assignment]  # pydantic's own form
    properties: dict[str, JsonObject] = node.setdefault("properties", {})  # type: ignore[assignment]  # pydantic's own form
    return properties


def _in_snake_case(schema: JsonValue) -> JsonObject:
    """Return a plugin's schema with the keys that a YAML file has."""
    from pydantic.alias_generators import to_snake

    def renamed(node: JsonValue) -> JsonValue:
        if isinstance(node, list):
            return [renamed(item) for item in node]
        if not isinstance(node, dict):
            return node
        return {
            key: {to_snake(name): renamed(inner) for name, inner in value.items()}
            if key == "properties" and isinstance(value, dict)
            else renamed(value)
            for key, value in node.items()
        }

    result = renamed(schema)
    return result if isinstance(result, dict) else {}
