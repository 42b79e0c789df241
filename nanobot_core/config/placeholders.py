"""``${NAME}``, ``${NAME:-default}`` and ``${file:path}`` in the texts of a configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from nanobot_core.config.secrets import names_secret
from nanobot_core.config.tree import KeyPath, Origin, render_path
from nanobot_core.errors import ConfigProblem
from nanobot_core.messages import JsonObject, JsonValue

MAX_SECRET_FILE_BYTES = 64 * 1024

_PLACEHOLDER = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class Expansion:
    """Expands the values of one configuration that come from its file.

    What the environment and the command line give is taken as it is, and profiles stay as they are
    written, since those that are not chosen need not be complete.

    Attributes:
        problems: placeholders without a value.
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
        return {
            key: value if key == "profiles" else self._expand(value, (key,))
            for key, value in tree.items()
        }

    def _expand(self, value: JsonValue, at: KeyPath) -> JsonValue:
        if isinstance(value, dict):
            return {key: self._expand(inner, (*at, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._expand(inner, (*at, index)) for index, inner in enumerate(value)]
        origin = self._origins.get(render_path(at))
        if not isinstance(value, str) or origin is None or origin.line is None:
            return value
        path = render_path(at)
        return _PLACEHOLDER.sub(lambda match: self._replace(match, path, origin), value)

    def _replace(self, match: re.Match[str], path: str, origin: Origin) -> str:
        if match[1]:
            return "${"
        name, remedy = match[2], ""
        variable = _VARIABLE.fullmatch(name)
        if name.startswith("file:"):
            text = self._read(name.removeprefix("file:"))
            if text is not None:
                return text
            reason = f"expected a readable text file for ${{{name}}}"
        elif variable is None:
            reason = "expected ${NAME}, ${NAME:-default} or ${file:path}"
            remedy = "write $${ for a plain ${"
        else:
            text = self._environ.get(variable[1]) or variable[2]
            if text is not None:
                if names_secret(variable[1]):
                    self.secrets.add(text)
                return text
            reason = f"expected the environment variable {variable[1]} to be set"
            remedy = f"set it, or write ${{{variable[1]}:-default}}"
        self.problems.append(
            ConfigProblem(path, reason, file=origin.source, line=origin.line, remedy=remedy)
        )
        return ""

    def _read(self, name: str) -> str | None:
        path = self._folder / Path(name).expanduser()
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
