"""Loading: command line over environment over profile over file over defaults."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import field
from pathlib import Path

from nanobot_core.config.environment import (
    environment_values,
    expand_home,
    named_config_path,
    process_environment,
    resolve_config_path,
    resolve_home,
)
from nanobot_core.config.legacy import migrate, migrate_expanded
from nanobot_core.config.models import Settings
from nanobot_core.config.placeholders import Expansion
from nanobot_core.config.secrets import (
    Redactor,
    environment_secrets,
    find_secrets,
    mask_tree,
    maskable,
)
from nanobot_core.config.source import parse_source, read_text
from nanobot_core.config.tree import (
    KeyPath,
    Origin,
    Origins,
    fold,
    nest,
    overlay,
    parse_path,
    render_path,
    resolve,
    walk,
)
from nanobot_core.config.validation import Places, Validation, nearest_key, secrets_in
from nanobot_core.errors import ConfigInvalid, ConfigProblem, ConfigUnreadable
from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.record import dataclass


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration that has been read.

    Attributes:
        settings: the core's part, validated.
        tree: everything, layers merged and placeholders expanded.
        origins: key path to the place its value comes from; defaults have none.
        path: the file, or ``None`` if there is none.
        home: nanobot's folder.
        secrets: values that must not be shown or logged.
        redactor: replaces them, and those that sections of plugins declare, in any text.
        findings: what is wrong or has no effect, by file and line.
        secret_files: files that values come from, ``${file:path}``.
    """

    settings: Settings
    tree: JsonObject = field(repr=False)
    origins: Mapping[str, Origin] = field(repr=False)
    path: Path | None
    home: Path
    secrets: frozenset[str] = field(repr=False)
    findings: tuple[ConfigProblem, ...] = ()
    secret_files: tuple[Path, ...] = ()
    redactor: Redactor = field(default_factory=Redactor, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Teach the redactor, which copies of this share, what is secret."""
        self.redactor.learn(self.secrets)

    @property
    def warnings(self) -> tuple[ConfigProblem, ...]:
        """Keys that have no effect and are probably not meant."""
        return tuple(found for found in self.findings if found.level == "warning")

    def missing_in(self, path: str) -> tuple[ConfigProblem, ...]:
        """Return the placeholders without a value in the section at `path`."""
        start = f"{fold(path)}."
        return tuple(
            found
            for found in self.findings
            if found.level == "missing" and f"{fold(found.path)}.".startswith(start)
        )

    @property
    def protected_paths(self) -> tuple[Path, ...]:
        """Folders and files that are closed to every tool: nanobot's own and those with secrets."""
        own = (self.home, *((self.path,) if self.path else ()))
        return (*own, *self.secret_files)

    @property
    def workspace(self) -> Path:
        """The agent's working folder, absolute; it moves with the home unless it is set."""
        defaults = self.settings.agents.defaults
        if "workspace" not in defaults.model_fields_set:
            return self.home / "workspace"
        return (self.home / expand_home(defaults.workspace)).absolute()

    def value_at(self, path: str) -> JsonValue:
        """Return the value at a key path in any spelling, ``None`` if there is none."""
        steps = parse_path(path)
        found, value = resolve(self.tree, steps)
        return value if len(found) == len(steps) else None

    @property
    def is_empty(self) -> bool:
        """Whether the file is missing or empty."""
        return not any(
            at and origin.source == str(self.path) for at, origin in self.origins.items()
        )

    @property
    def places(self) -> Places:
        """Where the values come from, for messages."""
        file = str(self.path) if self.path else None
        return Places(self.tree, self.origins, self.redactor, file)

    def problem(
        self, path: str, expected: str, *, found: str | None = None, remedy: str = ""
    ) -> ConfigProblem:
        """Return a problem that names file and line of the value at `path`.

        Args:
            path: key path such as ``tools.exec.timeout_s``.
            expected: what would be accepted.
            found: the value as text; leave it out where it may be a secret.
            remedy: what to do.
        """
        return self.places.problem(parse_path(path), expected, found=found, remedy=remedy)

    def masked(self) -> JsonObject:
        """Return a copy of the tree that can be shown: secrets are replaced."""
        return mask_tree(self.tree, self.redactor)


def load_config(
    path: Path | None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, JsonValue] | None = None,
    profile: str | None = None,
    home: Path | None = None,
    lenient: bool = False,
) -> LoadedConfig:
    """Return the configuration that applies.

    Args:
        path: the file; ``None`` looks at ``NANOBOT_CONFIG`` and into the home, where it may be
            absent.
        environ: variables; ``None`` means those of the process.
        overrides: key path to value, from the command line.
        profile: overlay from ``profiles`` to apply; ``None`` looks at ``NANOBOT_PROFILE``.
        home: nanobot's folder; ``None`` looks at ``NANOBOT_HOME``.
        lenient: leave out values whose placeholder has no value. A plugin whose section has such
            a value cannot start.

    Raises:
        ConfigUnreadable: a file that is named but missing, or cannot be parsed.
        ConfigInvalid: values that cannot be used, all of them, in order of their lines.
    """
    environ = process_environment() if environ is None else environ
    layers = _Layers.of(path, environ, home)
    layers.add_file()
    layers.add_others(environ, profile, overrides or {})
    loaded = _validated(layers, environ)
    tolerated = {"warning", "missing"} if lenient else {"warning"}
    if wrong := [found for found in loaded.findings if found.level not in tolerated]:
        raise ConfigInvalid(wrong)
    return loaded


def read_config(
    path: Path | None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, JsonValue] | None = None,
    profile: str | None = None,
    home: Path | None = None,
) -> LoadedConfig:
    """Return what is valid of the configuration, for commands that report on it.

    Never use the result to run an agent: what is wrong is left out, with a finding for each value.
    Arguments as `load_config`.
    """
    environ = process_environment() if environ is None else environ
    layers = _Layers.of(path, environ, home)
    problems: list[ConfigProblem] = []
    try:
        layers.add_file()
        layers.add_others(environ, profile, overrides or {})
    except ConfigInvalid as error:
        problems += error.problems
    except ConfigUnreadable as error:
        problems.append(ConfigProblem("", error.reason, file=error.file, line=error.line))
    return _validated(layers, environ, problems)


class _Layers:
    """The layers of a configuration, one laid over the other.

    Attributes:
        tree: the values.
        origins: where they come from.
        warnings: values of the original's configuration that have no counterpart.
        file: the file, or ``None`` if there is none.
        home: nanobot's folder.
    """

    def __init__(self, file: Path | None, home: Path) -> None:
        self.tree: JsonObject = {}
        self.origins: Origins = {}
        self.warnings: list[ConfigProblem] = []
        self.file, self.home = file, home

    @classmethod
    def of(cls, path: Path | None, environ: Mapping[str, str], home: Path | None) -> _Layers:
        home = (home or resolve_home(environ)).absolute()
        file = resolve_config_path(path, environ, home)
        has_file = named_config_path(path, environ) is not None or file.is_file()
        return cls(file if has_file else None, home)

    def add_file(self) -> None:
        path = self.file
        if path is None:
            return
        is_json = path.suffix.lower() == ".json"
        source = parse_source(read_text(path), str(path), is_json=is_json)
        self.tree = source.tree
        self.origins = {key: Origin(str(path), line) for key, line in source.lines.items()}
        self.warnings = migrate(self.tree, self.origins)

    def add_others(
        self,
        environ: Mapping[str, str],
        profile: str | None,
        overrides: Mapping[str, JsonValue],
    ) -> None:
        self._add_profile(profile or environ.get("NANOBOT_PROFILE"))
        for name, at, value in environment_values(environ):
            self._add_value(at, value, f"environment variable {name}")
        for key, value in overrides.items():
            self._add_value(parse_path(key), value, "command line")

    def _add_profile(self, name: str | None) -> None:
        if not name:
            return
        found, overlaid = resolve(self.tree, ("profiles", name))
        if len(found) == 2 and isinstance(overlaid, dict):
            # Copies: further layers must not change what the profile says.
            overlay(self.tree, deepcopy(overlaid), self.origins, dict(self.origins), ((), found))
            return
        profiles = resolve(self.tree, ("profiles",))[1]
        near = nearest_key(name, profiles) if isinstance(profiles, dict) and found else None
        remedy = f"did you mean '{near}'?" if near else "add it, or choose another profile"
        expected = f"expected a mapping for the profile '{name}'"
        file = str(self.file) if self.file else None
        raise ConfigInvalid([ConfigProblem("profiles", expected, file, remedy=remedy)])

    def _add_value(self, at: KeyPath, value: JsonValue, source: str) -> None:
        layer = nest(at, value)
        origins = {render_path(inner): Origin(source) for inner, _ in walk(layer)}
        overlay(self.tree, layer, self.origins, origins)


def _validated(
    layers: _Layers, environ: Mapping[str, str], problems: Collection[ConfigProblem] = ()
) -> LoadedConfig:
    """Return the configuration with all findings; what they forbid is left out of the settings."""
    path, home = layers.file, layers.home
    expansion = Expansion(environ, layers.origins, path.parent if path else home)
    tree = expansion.expand_tree(layers.tree)
    warnings = [*layers.warnings, *migrate_expanded(tree, layers.origins)]
    found = {*expansion.secrets, *find_secrets(tree), *environment_secrets(environ)}
    secrets = maskable(found)
    places = Places(tree, layers.origins, Redactor(secrets), str(path) if path else None)
    validation = Validation(places)
    settings = validation.validate(tree, Settings)
    findings = in_order(
        [*problems, *expansion.problems, *validation.errors, *validation.warnings, *warnings]
    )
    if settings is None:
        settings = _usable(tree, validation) or Settings()
    secrets |= maskable(secrets_in(settings))
    files = tuple(sorted(expansion.files))
    return LoadedConfig(settings, tree, layers.origins, path, home, secrets, tuple(findings), files)


def _usable(tree: JsonObject, validation: Validation) -> Settings | None:
    """Return the settings without the values that are wrong, if the rest is valid."""
    kept = deepcopy(tree)
    for problem in reversed(in_order(validation.errors)):
        at, _ = resolve(kept, parse_path(problem.path))
        if at:
            _, holder = resolve(kept, at[:-1])
            del holder[at[-1]]  # type: ignore[union-attr,arg-type]  # the path exists
    return Validation(validation.places).validate(kept, Settings)


def in_order(problems: Collection[ConfigProblem]) -> list[ConfigProblem]:
    """Return `problems` by file and line, the first and gravest of each value."""
    by_level = sorted(problems, key=lambda problem: problem.level == "warning")
    first = {(problem.path, problem.file): problem for problem in reversed(by_level)}
    return sorted(first.values(), key=lambda problem: (problem.file or "", problem.line or 0))
