"""``${NAME}``, ``${NAME:-default}`` and ``${file:path}`` in the texts of a configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nanobot_core.config.environment import expand_home
from nanobot_core.config.secrets import names_secret, resembles_secret
from nanobot_core.config.tree import KeyPath, Origin, render_path
from nanobot_core.errors import ConfigProblem
from nanobot_core.messages import JsonObject, JsonValue

MAX_SECRET_FILE_BYTES = 64 * 1024

_PLACEHOLDER = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class _Missing(Exception):
    """A placeholder has no value.

    Args:
        expected: what was expected.
        remedy: what to do.
    """

    def __init__(self, expected: str, remedy: str = "") -> None:
        self.expected = expected
        self.remedy = remedy


class Expansion:
    """Expands the values of one configuration that come from its file.

    Values of the environment and the command line are not expanded. Profiles are not either,
    because a profile that is not chosen need not be complete.

    Attributes:
        problems: placeholders without a value; values that contain them are left out of the result.
        secrets: the content of secret files and of variables that name a secret.
        files: the secret files.
    """

    def __init__(
        self, environ: Mapping[str, str], origins: Mapping[str, Origin], folder: Path
    ) -> None:
        self.problems: list[ConfigProblem] = []
        self.secrets: set[str] = set()
        self.files: set[Path] = set()
        self._environ, self._origins, self._folder = environ, origins, folder

    def expand_tree(self, tree: JsonObject) -> JsonObject:
        """Return `tree` with its placeholders replaced."""
        kept = {key: value for key, value in tree.items() if key == "profiles"}
        rest = {key: value for key, value in tree.items() if key != "profiles"}
        return self._expand_mapping(rest, ()) | kept

    def _expand_mapping(self, mapping: JsonObject, at: KeyPath) -> JsonObject:
        found: JsonObject = {}
        for key, inner in mapping.items():
            with suppress(_Missing):
                found[key] = self._expand(inner, (*at, key))
        return found

    def _expand(self, value: JsonValue, at: KeyPath) -> JsonValue:
        """Return `value` expanded.

        Raises:
            _Missing: it has a placeholder without a value, which is reported.
        """
        if isinstance(value, dict):
            return self._expand_mapping(value, at)
        if isinstance(value, list):
            items: list[JsonValue] = []
            for index, inner in enumerate(value):
                with suppress(_Missing):
                    items.append(self._expand(inner, (*at, index)))
            return items
        origin = self._origins.get(render_path(at))
        if not isinstance(value, str) or origin is None or origin.line is None:
            return value
        is_secret = any(isinstance(step, str) and names_secret(step) for step in at)
        try:
            return _PLACEHOLDER.sub(
                lambda match: "${" if match[1] else self._look_up(match[2], is_secret=is_secret),
                value,
            )
        except _Missing as missing:
            self.problems.append(
                ConfigProblem(
                    render_path(at),
                    missing.expected,
                    file=origin.source,
                    line=origin.line,
                    remedy=missing.remedy,
                    level="missing",
                )
            )
            raise

    def _look_up(self, name: str, *, is_secret: bool) -> str:
        """Return the value of ``${name}``; an empty secret would admit anyone, or is a mistake.

        Raises:
            _Missing: it has no value.
        """
        if name.startswith("file:"):
            text = self._read(name.removeprefix("file:"))
            if text is None:
                raise _Missing(f"expected a readable text file for ${{{name}}}")
            if is_secret and not text:
                raise _Missing(f"expected a secret, and the file of ${{{name}}} is empty")
            return text
        variable = _VARIABLE.fullmatch(name)
        if variable is None:
            expected = "expected ${NAME}, ${NAME:-default} or ${file:path}"
            raise _Missing(expected, "write $${ for a plain ${")
        name, default = variable.groups()
        value = self._environ.get(name)
        if default is not None:  # as in a shell, where `:-` replaces an empty variable too
            value = value or default
        elif value is None:
            expected = f"expected the environment variable {name} to be set"
            raise _Missing(expected, f"set it, or write ${{{name}:-default}}")
        elif is_secret and not value:
            expected = f"expected a secret, and the environment variable {name} is set but empty"
            raise _Missing(expected, f"give it a value, or write ${{{name}:-}} to allow none")
        if names_secret(name) or resembles_secret(value):
            self.secrets.add(value)
        return value

    def _read(self, name: str) -> str | None:
        path = self._folder / expand_home(name)
        self.files.add(path)
        try:
            if not path.is_file():
                return None
            with path.open("rb") as file:
                content = file.read(MAX_SECRET_FILE_BYTES + 1)
            text = content.decode().removesuffix("\n").removesuffix("\r")
        except (OSError, ValueError, RuntimeError):
            return None
        if len(content) > MAX_SECRET_FILE_BYTES:
            return None
        self.secrets.update((text, *text.splitlines()))
        return text
