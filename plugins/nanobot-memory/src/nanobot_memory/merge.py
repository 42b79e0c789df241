"""Three-way merge of texts by lines."""

from __future__ import annotations

from difflib import SequenceMatcher


def merge(base: str, ours: str, theirs: str) -> str | None:
    """Return `theirs` with the changes that lead from `base` to `ours`.

    Returns:
        ``None`` if both changed the same lines.
    """
    if theirs == base:
        return ours
    if theirs == ours:
        return theirs
    before, after, result = (text.splitlines(keepends=True) for text in (base, ours, theirs))
    kept = SequenceMatcher(None, before, result, autojunk=False).get_matching_blocks()
    changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for kind, first, last, new_first, new_last in reversed(changes):
        if kind == "equal":
            continue
        # The lines that change, or those around an insertion, must be as they were.
        place = next((b for b in kept if b.a <= first and last <= b.a + b.size), None)
        if place is None:
            return None
        start = place.b + first - place.a
        result[start : start + last - first] = after[new_first:new_last]
    return "".join(result)
