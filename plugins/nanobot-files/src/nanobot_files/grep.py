"""grep: lines in files that match a regular expression."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from nanobot_core import PathGuard, ToolContext, ToolError, ToolInputError
from nanobot_files.files import FileParams, FileTool
from nanobot_files.listing import place, render_lines
from nanobot_files.pattern import PathPattern
from nanobot_files.search import Matches, Query, search
from nanobot_files.text_file import SAMPLE_BYTES, detect_encoding
from nanobot_files.walk import Walk
from nanobot_files.worker import Watch, run_to_end

_TYPES = {
    "c": "*.{c,h}",
    "cpp": "*.{cc,cpp,cxx,hh,hpp,hxx,h}",
    "cs": "*.cs",
    "css": "*.{css,scss,sass,less}",
    "csv": "*.{csv,tsv}",
    "go": "*.go",
    "html": "*.{html,htm}",
    "java": "*.java",
    "js": "*.{js,jsx,mjs,cjs}",
    "json": "*.{json,jsonl,ndjson}",
    "kotlin": "*.{kt,kts}",
    "lua": "*.lua",
    "make": "{Makefile,makefile,GNUmakefile,*.mk}",
    "md": "*.{md,markdown,mdx}",
    "php": "*.php",
    "py": "*.{py,pyi}",
    "rb": "*.rb",
    "rs": "*.rs",
    "sh": "*.{sh,bash,zsh,fish}",
    "sql": "*.sql",
    "swift": "*.swift",
    "toml": "*.toml",
    "ts": "*.{ts,tsx,mts,cts}",
    "txt": "*.{txt,rst,log}",
    "xml": "*.{xml,xsd,xsl,svg}",
    "yaml": "*.{yaml,yml}",
}


def pattern_of_type(name: str) -> str:
    """Return the path pattern of a kind of file.

    Raises:
        ToolInputError: the kind is unknown.
    """
    if name not in _TYPES:
        raise ToolInputError(f"unknown file type '{name}'; use one of {', '.join(_TYPES)}")
    return _TYPES[name]


_LINE_CHARS = 500
_PIECE_CHARS = 10_000_000
_LINES_PER_CHECK = 1_000


def count_matches(shown: str, numbers: Sequence[int], output_mode: str) -> str:
    """Return the line of a file in an answer without content."""
    return f"{shown}:{len(numbers)}" if output_mode == "count" else shown


@dataclass(frozen=True, slots=True)
class Excerpts:
    """Reads passages for an answer.

    Attributes:
        guard: opens the files.
        watch: checked while reading.
        context: lines to give before and after each.
    """

    guard: PathGuard
    watch: Watch
    context: int

    def is_text(self, path: Path) -> bool:
        """Whether `path` is a text file that may be read."""
        self.watch.check()
        try:
            with self.guard.open_read(path) as file:
                encoding = detect_encoding(file.read(SAMPLE_BYTES))
        except (ToolError, OSError):
            return False
        return encoding is not None and not encoding.name.startswith("utf-32")

    def around(self, path: Path, shown: str, numbers: Sequence[int]) -> list[str]:
        """Return the lines with these numbers, ascending, as ``path:LINE:text``.

        Lines of context are ``path-LINE-text``, and ``--`` marks lines that are left out.
        """
        if not numbers:
            return []
        near = {n for at in numbers for n in range(at - self.context, at + self.context + 1)}
        result: list[str] = []
        former = 0
        for number, line in self._lines(path, max(near)):
            if number not in near:
                continue
            if self.context and former and number > former + 1:
                result.append("--")
            former = number
            result.append(_excerpt_line(shown, number, line, matched=number in numbers))
        return result

    def _lines(self, path: Path, last: int) -> Iterator[tuple[int, str]]:
        """Yield the lines of a text file with their numbers, up to the last that is wanted."""
        with self.guard.open_read(path) as file:
            encoding = detect_encoding(file.read(SAMPLE_BYTES))
            if encoding is None:
                return
            file.seek(len(encoding.bom))
            with io.TextIOWrapper(file, encoding.name, errors="replace", newline="\n") as text:
                for number in range(1, last + 1):
                    if number % _LINES_PER_CHECK == 0:
                        self.watch.check()
                    line = text.readline(_PIECE_CHARS)
                    if not line:
                        return
                    yield number, line


def _excerpt_line(shown: str, number: int, line: str, *, matched: bool) -> str:
    mark = ":" if matched else "-"
    content = line.rstrip("\r\n")
    if len(content) > _LINE_CHARS:
        content = f"{content[:_LINE_CHARS]}… [line of {len(content):,} characters]"
    return f"{shown}{mark}{number}{mark}{content}"


_MAX_FILE_BYTES = 100_000_000
_EVERY_LINE = 1_000_000_000


class GrepParams(FileParams):
    """Parameters of `GrepTool`."""

    pattern: str = Field(min_length=1, description="Regular expression (Python), line by line.")
    path: str = Field(default=".", description="Folder or file; the workspace by default.")
    glob: str | None = Field(default=None, description="Only files like this, such as *.{ts,tsx}.")
    type: str | None = Field(default=None, description="Only this kind: py, js, ts, md, …")
    output_mode: Literal["files_with_matches", "content", "count"] = Field(
        default="files_with_matches", description="What to return."
    )
    context: int = Field(default=0, ge=0, le=50, description="Lines around each match (content).")
    case_insensitive: bool = Field(default=False, description="Disregard case.")
    head_limit: int = Field(default=100, ge=1, le=5_000, description="Most files or matches.")


class GrepTool(FileTool[GrepParams]):
    """Searches files; ripgrep makes it faster and does not change the answers."""

    name = "grep"
    description = (
        "Search in files. Skips binary files, what .gitignore names, and folders such as .git and "
        "node_modules. For a broad search count or list the files first, then look at content. To "
        "find files by name use glob."
    )
    parameters_model = GrepParams
    read_only = True
    compactable = True

    async def run(self, context: ToolContext, params: GrepParams) -> str:
        """Search."""
        limit_s = self._files.settings.search_timeout_s
        query = Query(params.pattern, params.case_insensitive, _max_per_file(params))
        guard, scope = await run_to_end(
            lambda watch: self._collect(context, params, watch), limit_s
        )
        ripgrep = shutil.which("rg", path=self._files.search_path or "")
        matches = await search(scope.root, scope.names, query, ripgrep=ripgrep, limit_s=limit_s)
        return await run_to_end(
            lambda watch: self._render(guard, scope, matches, params, watch), limit_s
        )

    def _collect(
        self, context: ToolContext, params: GrepParams, watch: Watch
    ) -> tuple[PathGuard, _Scope]:
        wanted = [PathPattern(params.glob)] if params.glob else []
        if params.type:
            wanted.append(PathPattern(pattern_of_type(params.type)))
        guard = self._files.guard(context)
        root = guard.resolve_read(params.path)
        if not root.is_dir():
            with guard.open_read(root):
                return guard, _Scope(root.parent, (root.name,))
        names = [
            each.text
            for each in Walk(guard, watch).files(root)
            if each.facts.st_size <= _MAX_FILE_BYTES
            and all(pattern.matches(each.names) for pattern in wanted)
        ]
        return guard, _Scope(root, names)

    def _render(
        self, guard: PathGuard, scope: _Scope, matches: Matches, params: GrepParams, watch: Watch
    ) -> str:
        excerpts = Excerpts(guard, watch, params.context)
        lines: list[str] = []
        total = taken = 0
        for name in scope.names:
            numbers = matches.lines.get(name)
            if not numbers or not excerpts.is_text(scope.root / name):
                continue
            shown = place(scope.root / name, guard.workspace)
            room = params.head_limit - taken
            if params.output_mode == "content":
                total += len(numbers)
                kept = numbers[: max(room, 0)]
                taken += len(kept)
                lines += excerpts.around(scope.root / name, shown, kept)
            else:
                total += 1
                if room > 0:
                    taken += 1
                    lines.append(count_matches(shown, numbers, params.output_mode))
        if not total:
            return f"No match for {params.pattern} below {params.path}."
        remedy = "narrow the search with path, glob or type, or raise head_limit"
        room = self._files.settings.max_page_chars
        text = render_lines(lines, len(lines) + total - taken, room, remedy)
        return f"{text}\n[there are more matches than were counted]" if matches.cut else text


class _Scope(NamedTuple):
    """The files to search: names relative to a folder, in the order of the report."""

    root: Path
    names: Sequence[str]


def _max_per_file(params: GrepParams) -> int:
    match params.output_mode:
        case "files_with_matches":
            return 1
        case "content":
            # One more than is shown, so that the answer can say that there are more.
            return params.head_limit + 1
        case "count":
            return _EVERY_LINE
