"""Prompt texts: Markdown files in a package, which the owner can replace by files of the same name.

A package keeps its texts in ``prompts/NAME.md``. A file of that name in nanobot's folder replaces
one: ``prompts/NAME.md`` for the core, ``prompts/PLUGIN/NAME.md`` for a plugin. It is not in the
workspace, where the model could write it. Texts have placeholders such as ``{{workspace}}``; a
replacement may use those of the text that it replaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from nanobot_core.errors import ConfigProblem, PluginRejected

if TYPE_CHECKING:
    from nanobot_core.contracts.context import PluginContext

MAX_PROMPT_BYTES: Final = 40_000
"""Size of a replacement at most; each request contains it."""
CORE: Final = Path(__file__).parent
_PLACEHOLDER = re.compile(r"\{\{ *(\w+) *\}\}")


class _Fault(NamedTuple):
    """Why a replacement cannot be used, and the line, if there is one."""

    reason: str
    line: int | None = None


def prompt(ctx: PluginContext, reference: str, **values: str) -> str:
    """Return a prompt text of a plugin, or the owner's replacement for it. Blocks.

    A replacement that cannot be used is logged, and the plugin's text is used instead.

    Args:
        ctx: the plugin's context.
        reference: ``package:name`` for the file ``prompts/name.md`` in that package.
        values: texts for the placeholders.

    Raises:
        PluginRejected: the package has no such text, or `values` lacks one of its placeholders.
    """
    package, _, name = reference.partition(":")
    folder = _folder_of(package)
    if folder is None or not (folder / f"{name}.md").is_file():
        reason = f"it uses the prompt text '{reference}', which does not exist"
        raise PluginRejected(ctx.id, reason, f"add the file prompts/{name}.md to {package}")
    text = read_prompt(folder, ctx.prompts_dir, name)
    if missing := _placeholders(text) - values.keys():
        reason = f"the prompt text '{reference}' needs {_listed(missing)}"
        raise PluginRejected(ctx.id, reason, "pass a value for each placeholder")
    return fill_prompt(text, values)


@cache
def packaged_text(name: str) -> str:
    """Return one of the core's own texts. Blocks."""
    return (CORE / f"{name}.md").read_text("utf-8").strip()


def read_prompt(folder: Path, replacements: Path, name: str) -> str:
    """Return the text `name` of `folder`, or its usable replacement. Blocks."""
    text = (folder / f"{name}.md").read_text("utf-8").strip()
    file = replacements / f"{name}.md"
    replacement, fault = _read_replacement(file, text)
    if fault is not None:
        from loguru import logger

        logger.warning("{} is not used: {}; see nanobot config check", file, fault.reason)
    return replacement or text


def fill_prompt(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with its placeholders replaced, and without the gaps that empty ones leave."""
    filled = _PLACEHOLDER.sub(lambda match: values[match[1]], text)
    return re.sub(r"\n{3,}", "\n\n", filled).strip() if "" in values.values() else filled


def prompt_problems(replacements: Path, packages: Mapping[str, str]) -> Iterator[ConfigProblem]:
    """Yield what is wrong with the owner's replacements. Blocks.

    Args:
        replacements: their folder.
        packages: package of each installed plugin, by its id.
    """
    yield from _problems_in(replacements, CORE)
    for folder in sorted(path for path in _entries(replacements) if path.is_dir()):
        if folder.name in packages:
            yield from _problems_in(folder, _folder_of(packages[folder.name]))
        else:
            yield ConfigProblem(
                "", "expected the id of an installed plugin", str(folder), found=folder.name
            )


def _problems_in(replacements: Path, folder: Path | None) -> Iterator[ConfigProblem]:
    known = sorted(path.stem for path in folder.glob("*.md")) if folder else []
    for file in sorted(path for path in _entries(replacements) if not path.is_dir()):
        if folder is None or file.suffix != ".md" or file.stem not in known:
            names = ", ".join(f"{name}.md" for name in known) or "no file: the plugin has no texts"
            yield ConfigProblem("", f"expected one of {names}", str(file), found=file.name)
            continue
        text = (folder / file.name).read_text("utf-8")
        _, fault = _read_replacement(file, text)
        if fault is not None:
            yield ConfigProblem("", fault.reason, str(file), fault.line)


def _folder_of(package: str) -> Path | None:
    """Return the folder of the prompt texts of a package, or ``None`` if it has none. Blocks."""
    from importlib.util import find_spec

    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return None
    places = (Path(place, "prompts") for place in (spec and spec.submodule_search_locations) or ())
    return next((place for place in places if place.is_dir()), None)


def _entries(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError:
        return []


def _read_replacement(file: Path, text: str) -> tuple[str, _Fault | None]:
    """Return the content of `file`, which replaces `text`; empty if the file cannot be used."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_PROMPT_BYTES + 1)
        found = data.decode("utf-8").strip()
    except FileNotFoundError:
        return "", None
    except OSError as error:
        return "", _Fault(f"cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        return "", _Fault("expected text in UTF-8", data.count(b"\n", 0, error.start) + 1)
    if len(data) > MAX_PROMPT_BYTES:
        return "", _Fault(f"expected at most {MAX_PROMPT_BYTES:,} bytes")
    if not found:
        return "", _Fault("expected a text, found an empty file; delete it to use the original")
    known = _placeholders(text)
    for number, line in enumerate(data.decode("utf-8").splitlines(), 1):
        if unknown := _placeholders(line) - known:
            allowed = f"this text has {_listed(known)}" if known else "this text has none"
            return "", _Fault(f"unknown placeholder {_listed(unknown)}; {allowed}", number)
    return found, None


def _placeholders(text: str) -> frozenset[str]:
    return frozenset(_PLACEHOLDER.findall(text))


def _listed(names: frozenset[str]) -> str:
    return ", ".join(f"{{{{{name}}}}}" for name in sorted(names))
