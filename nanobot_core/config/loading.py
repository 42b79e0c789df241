"""Loading: command line over environment over profile over file over defaults."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import field, replace
from pathlib import Path
from typing import Literal

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
from nanobot_core.config.validation import Validation, in_order, nearest_key, secrets_in
from nanobot_core.errors import ConfigError, ConfigInvalid, ConfigProblem, ConfigUnreadable
from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.record import dataclass


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration that has been read.

    Attributes:
        settings: the core's part, validated.
        tree: everything, layers merged and placeholders expanded.
        origins: key path to the source of its value; defaults have none.
        path: the file, or ``None`` without one.
        home: nanobot's folder.
        secrets: values that must not be shown or logged.
        findings: what is invalid or has no effect, by file and line.
        secret_files: files that values come from, ``${file:path}``.
        redactor: replaces the secrets, and those that sections of plugins declare, in any text.
        environ: the variables it was read with.
        profile: the overlay it was read with, or ``None``.
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
    environ: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    profile: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Register the secrets with the redactor, which copies of this object share."""
        self.redactor.learn(self.secrets)

    @property
    def warnings(self) -> tuple[ConfigProblem, ...]:
        """Keys that have no effect and are probably mistakes."""
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
        """The agent's working folder, absolute; inside the home unless it is configured."""
        defaults = self.settings.agents.defaults
        if "workspace" not in defaults.model_fields_set:
            return self.home / "workspace"
        return (self.home / expand_home(defaults.workspace)).absolute()

    def value_at(self, path: str) -> JsonValue:
        """Return the value at a key path in any spelling, or ``None``."""
        steps = parse_path(path)
        found, value = resolve(self.tree, steps)
        return value if len(found) == len(steps) else None

    @property
    def is_empty(self) -> bool:
        """Whether the file is missing or empty."""
        return not any(
            at and origin.source == str(self.path) for at, origin in self.origins.items()
        )

    def problem(
        self,
        path: str | KeyPath,
        expected: str,
        *,
        found: str | None = None,
        remedy: str = "",
        level: Literal["error", "warning"] = "error",
    ) -> ConfigProblem:
        """Return a problem with file and line of the value at `path`, or of the nearest around it.

        Args:
            path: key path such as ``tools.exec.timeout_s``.
            expected: what would be accepted.
            found: the value as text; ``None`` if it may be a secret.
            remedy: what to do.
            level: as in `ConfigProblem`.
        """
        steps = parse_path(path) if isinstance(path, str) else path
        known, _ = resolve(self.tree, steps)
        while known and render_path(known) not in self.origins:
            known = known[:-1]
        origin = self.origins[render_path(known)] if known else self._whole
        mask = self.redactor.mask
        return ConfigProblem(
            render_path(steps),
            mask(expected),
            file=origin.source,
            line=origin.line,
            found=None if found is None else mask(found),
            remedy=mask(remedy),
            level=level,
        )

    @property
    def _whole(self) -> Origin:
        return Origin(str(self.path) if self.path else "configuration")

    def read_again(self, overrides: Mapping[str, JsonValue] | None = None) -> LoadedConfig:
        """Return what the same sources contain now; see `read_config`. Blocks.

        Args:
            overrides: key path to value, instead of those from the command line.
        """
        found = read_config(
            self.path,
            environ=self.environ,
            overrides=overrides,
            profile=self.profile,
            home=self.home,
        )
        found.redactor.learn(self.redactor.secrets)
        return found

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
        path: the file; ``None`` means ``NANOBOT_CONFIG``, else the file in the home, if any.
        environ: variables; ``None`` means those of the process.
        overrides: key path to value, from the command line.
        profile: overlay from ``profiles`` to apply; ``None`` means ``NANOBOT_PROFILE``.
        home: nanobot's folder; ``None`` means ``NANOBOT_HOME``.
        lenient: leave out values whose placeholder has no value. A plugin whose section has such
            a value cannot start.

    Raises:
        ConfigUnreadable: a named file is missing, or a file cannot be parsed.
        ConfigInvalid: invalid values, all of them, in order of their lines.
    """
    environ = process_environment() if environ is None else environ
    layers = _Layers(path, environ, home)
    layers.read(environ, profile, overrides or {})
    loaded = replace(_validated(layers, environ), environ=environ, profile=profile)
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
    """Return the valid part of the configuration, for commands that report on it.

    Never use the result to run an agent: each invalid value is left out, with a finding.
    Arguments as `load_config`.
    """
    environ = process_environment() if environ is None else environ
    layers = _Layers(path, environ, home)
    problems: Collection[ConfigProblem] = ()
    try:
        layers.read(environ, profile, overrides or {})
    except ConfigError as error:
        problems = _problems_of(error)
    found = _validated(layers, environ, problems)
    return replace(found, environ=environ, profile=profile)


def _problems_of(error: ConfigError) -> Collection[ConfigProblem]:
    if isinstance(error, ConfigUnreadable):
        return [ConfigProblem("", error.reason, file=error.file, line=error.line)]
    return error.problems if isinstance(error, ConfigInvalid) else ()


class _Layers:
    """The merged layers of a configuration.

    Attributes:
        tree: the values.
        origins: their sources.
        warnings: values of the original's configuration that have no counterpart.
        file: the file, or ``None`` without one.
        home: nanobot's folder.
    """

    def __init__(self, path: Path | None, environ: Mapping[str, str], home: Path | None) -> None:
        self.tree: JsonObject = {}
        self.origins: Origins = {}
        self.warnings: list[ConfigProblem] = []
        self.home = (home or resolve_home(environ)).absolute()
        file = resolve_config_path(path, environ, self.home)
        is_named = named_config_path(path, environ) is not None
        self.file = file if is_named or file.is_file() else None

    def read(
        self, environ: Mapping[str, str], profile: str | None, overrides: Mapping[str, JsonValue]
    ) -> None:
        """Read all layers, the lowest first; after an error, those before it remain."""
        if self.file is not None:
            name = str(self.file)
            is_json = self.file.suffix.lower() == ".json"
            source = parse_source(read_text(self.file), name, is_json=is_json)
            self.tree = source.tree
            self.origins = {key: Origin(name, line) for key, line in source.lines.items()}
            self.warnings = migrate(self.tree, self.origins)
        if chosen := profile or environ.get("NANOBOT_PROFILE"):
            self._add_profile(chosen)
        for name, at, value in environment_values(environ):
            self._add_value(at, value, f"environment variable {name}")
        for key, value in overrides.items():
            self._add_value(parse_path(key), value, "command line")

    def _add_profile(self, name: str) -> None:
        found, overlaid = resolve(self.tree, ("profiles", name))
        if len(found) == 2 and isinstance(overlaid, dict):
            # Copies, because further layers must not change the profile itself.
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
    """Return the configuration with all findings; the settings leave out invalid values."""
    path, home = layers.file, layers.home
    expansion = Expansion(environ, layers.origins, path.parent if path else home)
    tree = expansion.expand_tree(layers.tree)
    warnings = [*layers.warnings, *migrate_expanded(tree, layers.origins)]
    found = {*expansion.secrets, *find_secrets(tree), *environment_secrets(environ)}
    loaded = LoadedConfig(
        Settings.model_construct(),
        tree,
        layers.origins,
        path,
        home,
        maskable(found),
        secret_files=tuple(sorted(expansion.files)),
    )
    validation = Validation(loaded)
    settings = validation.validate(tree, Settings)
    findings = in_order(
        [*problems, *expansion.problems, *validation.errors, *validation.warnings, *warnings]
    )
    settings = settings or _usable(loaded, validation.errors)
    secrets = loaded.secrets | maskable(secrets_in(settings))
    return replace(loaded, settings=settings, secrets=secrets, findings=tuple(findings))


def _usable(loaded: LoadedConfig, errors: Collection[ConfigProblem]) -> Settings:
    """Return the settings without the invalid values; the defaults if the rest is invalid too."""
    kept = deepcopy(loaded.tree)
    for problem in reversed(in_order(errors)):
        at, _ = resolve(kept, parse_path(problem.path))
        if at:
            _, holder = resolve(kept, at[:-1])
            del holder[at[-1]]  # type: ignore[union-attr,arg-type]  # the path exists
    return Validation(loaded).validate(kept, Settings) or Settings()
