"""``${NAME}``, ``${NAME:-default}`` and ``${file:path}`` in the texts of a configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from nanobot_core.config.environment import expand_home
from nanobot_core.config.secrets import names_secret, resembles_secret
from nanobot_core.config.tree import KeyPath, Origin, render_path
from nanobot_core.errors import ConfigProblem
from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.record import dataclass

MAX_SECRET_FILE_BYTES = 64 * 1024

_PLACEHOLDER = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Missing:
    """A placeholder without a value: what was expected, and what to do."""

    expected: str
    remedy: str = ""


class Expansion:
    """Expands the values of one configuration that come from its file.

    What the environment and the command line give is taken as it is, and profiles stay as they are
    written, since those that are not chosen need not be complete.

    Attributes:
        problems: placeholders without a value; values that contain them are left out of the result.
        secrets: what came from secret files and from variables that name a secret.
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
        found = {key: self._expand(inner, (*at, key)) for key, inner in mapping.items()}
        return {key: value for key, value in found.items() if not isinstance(value, _Missing)}

    def _expand(self, value: JsonValue, at: KeyPath) -> JsonValue | _Missing:
        if isinstance(value, dict):
            return self._expand_mapping(value, at)
        if isinstance(value, list):
            items = [self._expand(inner, (*at, index)) for index, inner in enumerate(value)]
            return [item for item in items if not isinstance(item, _Missing)]
        origin = self._origins.get(render_path(at))
        if not isinstance(value, str) or origin is None or origin.line is None:
            return value
        is_secret = any(isinstance(step, str) and names_secret(step) for step in at)
        missing: list[_Missing] = []

        def replaced(match: re.Match[str]) -> str:
            if match[1]:
                return "${"
            found = self._look_up(match[2], is_secret=is_secret)
            if not isinstance(found, _Missing):
                return found
            missing.append(found)
            return ""

        text = _PLACEHOLDER.sub(replaced, value)
        for each in missing:
            self.problems.append(
                ConfigProblem(
                    render_path(at),
                    each.expected,
                    file=origin.source,
                    line=origin.line,
                    remedy=each.remedy,
                    level="missing",
                )
            )
        return missing[0] if missing else text

    def _look_up(self, name: str, *, is_secret: bool) -> str | _Missing:
        """Return the value of ``${name}``; an empty secret lets everyone in or is a mistake."""
        if name.startswith("file:"):
            text = self._read(name.removeprefix("file:"))
            if text is None:
                return _Missing(f"expected a readable text file for ${{{name}}}")
            if is_secret and not text:
                return _Missing(f"expected a secret, and the file of ${{{name}}} is empty")
            return text
        variable = _VARIABLE.fullmatch(name)
        if variable is None:
            expected = "expected ${NAME}, ${NAME:-default} or ${file:path}"
            return _Missing(expected, "write $${ for a plain ${")
        name, default = variable.groups()
        value = self._environ.get(name)
        if default is not None:  # as in a shell, where `:-` replaces an empty variable too
            value = value or default
        elif value is None:
            expected = f"expected the environment variable {name} to be set"
            return _Missing(expected, f"set it, or write ${{{name}:-default}}")
        elif is_secret and not value:
            expected = f"expected a secret, and the environment variable {name} is set but empty"
            return _Missing(expected, f"give it a value, or write ${{{name}:-}} to go without")
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
