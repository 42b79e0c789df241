"""What a skill that Dream writes must be."""

from __future__ import annotations

from typing import Any, Final

from nanobot_core import ToolInputError
from nanobot_memory.findings import is_visible

MAX_CHARS: Final = 20_000
_MAX_DESCRIPTION_CHARS = 1_024
_KEYS: Final = frozenset({"name", "description", "license", "compatibility", "metadata"})


def require_skill(name: str, content: str) -> bool:
    """Return whether a ``SKILL.md`` wants to be in every prompt.

    Args:
        name: of its folder.
        content: the whole file.

    Raises:
        ToolInputError: it is too long, or its front matter is missing or wrong.
    """
    if len(content) > MAX_CHARS:
        raise ToolInputError(f"the skill has more than {MAX_CHARS:,} characters; shorten it")
    if not all(is_visible(line.replace("\t", "")) for line in content.splitlines()):
        raise ToolInputError("the skill has invisible characters; leave them out")
    lines = content.splitlines()
    if not lines or lines[0] != "---" or "---" not in lines[1:]:
        raise ToolInputError("a skill begins with front matter between two lines '---'")
    end = lines.index("---", 1)
    facts = _parsed("\n".join(lines[1:end]))
    unknown = sorted(str(key) for key in facts if key not in _KEYS and key != "always")
    description = facts.get("description")
    if unknown:
        raise ToolInputError(f"unknown keys in the front matter: {', '.join(unknown)}")
    if facts.get("name") != name:
        raise ToolInputError(f"the front matter needs 'name: {name}', like the folder")
    if not isinstance(description, str) or not 0 < len(description) <= _MAX_DESCRIPTION_CHARS:
        raise ToolInputError("the front matter needs a description of 1 to 1,024 characters")
    if not any(line.strip() for line in lines[end + 1 :]):
        raise ToolInputError("the skill has no instructions below its front matter")
    return "always" in content.partition("\n---")[0]


def _parsed(text: str) -> dict[Any, Any]:
    import yaml

    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            # With aliases, a short text can have an endless meaning.
            if getattr(event, "anchor", None) is not None:
                raise ToolInputError(
                    "write the value itself instead of an anchor or alias (& or *)"
                )
        facts = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = str(error).splitlines()[0]
        raise ToolInputError(f"the front matter is not valid YAML: {problem}") from error
    if not isinstance(facts, dict):
        raise ToolInputError("the front matter is not a list of 'key: value' lines")
    return facts
