"""Finds the sender's own words in the text of a mail."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST = 200_000
_LONGEST_LINE = 1_000
"""Longest line that can introduce a quotation; the patterns skip longer ones."""
_KEPT_QUOTE_LINES = 10
_HEADER_LINES = 6

_FORWARD_MARK = re.compile(
    r"^[-_*>\s]*(forwarded message|begin forwarded message|weitergeleitete nachricht|"
    r"message transféré|mensaje reenviado|messaggio inoltrato|doorgestuurd bericht|"
    r"mensagem encaminhada|"
    r"转发的邮件|转发邮件|転送されたメッセージ|пересланное сообщение)\b[-_*:\s]*$",
    re.IGNORECASE,
)
_FORWARD_SUBJECT = re.compile(r"^\s*(fwd?|wg|tr|rv|i|enc|vs|转发)\s*[:\uff1a]", re.IGNORECASE)
_ORIGINAL_MARK = re.compile(
    r"^[-_*>\s]*(original message|original appointment|ursprüngliche nachricht|message d'origine|"
    r"mensaje original|messaggio originale|oorspronkelijk bericht|mensagem original|原始邮件|"
    r"元のメッセージ|исходное сообщение)[-_*:\s]*$",
    re.IGNORECASE,
)
_FROM_LINE = re.compile(
    r"^\W*(from|von|de|da|van|från|fra|от|发件人|差出人)\W*\s?[:\uff1a]", re.IGNORECASE
)
_SUBJECT_LINE = re.compile(
    r"^\W*(subject|betreff|objet|asunto|oggetto|onderwerp|assunto|ämne|emne|тема|主题|件名)\W*[:\uff1a]",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(r"^--\s?$")
_DEVICE = re.compile(
    r"^(sent from (my|outlook|mail|yahoo)\b|get outlook for|von meinem .{2,40} gesendet|"
    r"envoyé (de|depuis) mon|enviado desde mi|inviato da|verzonden vanaf).{0,80}$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Words:
    """The text of a mail in parts.

    Attributes:
        own: what the sender wrote.
        forwarded: what the sender passes on, written by someone else.
    """

    own: str
    forwarded: str = ""


def split_body(text: str, subject: str = "") -> Words:
    """Return the words of a mail without the conversation that it repeats, and its signature.

    A quotation between the sender's own lines stays, because the lines refer to it. If nothing else
    is left, the quotation counts as passed on.
    """
    lines = [line.rstrip() for line in text[:_LONGEST].splitlines()]
    mark = _first(lines, _FORWARD_MARK)
    if mark is not None:
        return Words(_own(lines[:mark]), _unquoted(lines[mark + 1 :]))
    end = _history(lines)
    if end is not None and _FORWARD_SUBJECT.match(subject):
        return Words(_own(lines[:end]), _unquoted(lines[end:]))
    own = _own(lines if end is None else lines[:end])
    return Words(own) if own else Words("", _unquoted(lines))


def _first(lines: list[str], pattern: re.Pattern[str]) -> int | None:
    return next((i for i, line in enumerate(lines) if _matches(pattern, line)), None)


def _matches(pattern: re.Pattern[str], line: str) -> bool:
    return len(line) <= _LONGEST_LINE and pattern.match(line) is not None


def _history(lines: list[str]) -> int | None:
    """Return where a repeated conversation begins that has a heading."""
    for index, line in enumerate(lines):
        if _matches(_ORIGINAL_MARK, line):
            return index
        if _matches(_FROM_LINE, line) and any(
            _matches(_SUBJECT_LINE, other) for other in lines[index + 1 : index + _HEADER_LINES]
        ):
            # Outlook draws a line above these.
            above = index - 1
            while above >= 0 and not lines[above].strip("_- \t*"):
                above -= 1
            return above + 1
    return None


def _own(lines: list[str]) -> str:
    kept = _without_last_quote(lines)
    signature = _first(kept, _SIGNATURE)
    if signature is not None:
        kept = kept[:signature]
    while kept and (not kept[-1] or _matches(_DEVICE, kept[-1])):
        kept.pop()
    return "\n".join(_with_short_quotes(kept)).strip()


def _is_quote(line: str) -> bool:
    return line.startswith(">")


def _without_last_quote(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and (not lines[end - 1] or _is_quote(lines[end - 1])):
        end -= 1
    if not any(_is_quote(line) for line in lines[end:]):
        return lines
    kept = lines[:end]
    if not kept or not kept[-1].endswith((":", "\uff1a")):
        return kept
    # "On Monday, Alice <alice@example.com> wrote:", perhaps on two lines. Other lines that end like
    # this introduce a quotation, which then belongs to the sender's words.
    last, before = kept[-1][:_LONGEST_LINE], "".join(kept[-2:-1])[:_LONGEST_LINE]
    if not re.search(r"[0-9]", last) and re.search(r"[0-9]", before):
        return kept[:-2]
    return kept[:-1] if re.search(r"[@0-9]", last) else lines


def _with_short_quotes(lines: list[str]) -> list[str]:
    """Keep the last lines of each quotation."""
    kept: list[str] = []
    for index, line in enumerate(lines):
        after = lines[index : index + _KEPT_QUOTE_LINES + 1]
        if len(after) <= _KEPT_QUOTE_LINES or not all(_is_quote(other) for other in after):
            kept.append(line)
    return kept


def _unquoted(lines: list[str]) -> str:
    if all(not line or _is_quote(line) for line in lines):
        lines = [re.sub(r"^>\s?", "", line) for line in lines]
    return "\n".join(lines).strip()
