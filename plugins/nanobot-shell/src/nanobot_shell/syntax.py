"""The parsed command line as plain data.

The parser is tree-sitter's bash grammar. It is error-tolerant, so a line that it had to guess at
is marked incomplete and nothing that it found there is relied upon for allowing.

Where the grammar reads otherwise than bash, a command could hide in what it takes for a comment or
for quoted text. So it is shown the line as bash sees it: continued lines joined, and spelled out
between two control characters, which are part of a word and of no name, whatever the grammar's
scanner takes for a blank and bash does not, and all that is beyond ASCII. Of the latter it asks C's
``isdigit`` and ``isalpha``, which are not defined there (C11 7.4) and may end the process.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\([$`"\\])')
_COMMON_ESCAPES = re.compile(r"""(?:[^\\]|\\(?:[abfnrtv\\'"]|x[0-9a-fA-F]{2}|[0-3]?[0-7]{1,2}))*""")
"""Escapes of ``$'…'`` that Python reads as bash does."""
_GLOB = re.compile(r"(?<!\\)[*?\[]")
_BRACES = re.compile(r"(?<!\\)\{")
_ESCAPES = r"(?<!\\)((?:\\\\)*\\)"
"""An odd number of backslashes: the last one escapes what follows."""
_CONTINUATION = re.compile(_ESCAPES + r"\n")
_FOREIGN = re.compile(_ESCAPES + r"([ \t])|([\x01\x02\v\f\r\x80-\U0010ffff])")
_SPELLED_OUT = re.compile("\1([0-9a-f]+)\2")
_DELIMITER = re.compile(r"""(['"]?)([\w.\x01\x02-]+)\1""", re.ASCII)
_AFTER_DELIMITER = " \t\n;&|<>()"
_STATIC_NODES = {"word", "number", "variable_name", "test_operator", "file_descriptor"}
_LITERAL_NODES = {"comment", "raw_string", "ansi_c_string"}
_PLAIN_NODES = _STATIC_NODES | _LITERAL_NODES
_PLAIN_NODES |= {"program", "command", "command_name", "concatenation", "list", "pipeline"}
_PLAIN_NODES |= {"redirected_statement", "file_redirect", "string", "string_content"}
_ARITHMETIC_NODES = {"compound_statement", "arithmetic_expansion", "c_style_for_statement"}
_HIDDEN_INPUT = {"heredoc_redirect", "herestring_redirect"}


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command, quotes removed.

    Attributes:
        text: the word; where it is not literal, as written.
        is_literal: the shell passes on exactly `text`.
        has_glob: it contains a pattern that the shell replaces by file names.
    """

    text: str
    is_literal: bool = True
    has_glob: bool = False


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection to or from a file.

    Attributes:
        operator: such as ``>>``.
        target: the file.
        source: as written.
        is_outside: it follows the command or belongs to a group that contains the command.
    """

    operator: str
    target: Word
    source: str = ""
    is_outside: bool = False

    @property
    def writes(self) -> bool:
        """Whether the file is opened for writing."""
        return ">" in self.operator


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command.

    Attributes:
        words: name and arguments; empty for a mere assignment or redirection.
        assigned: values that are assigned in or before it.
        redirects: its redirections.
        source: as written, without redirections outside of it.
    """

    words: tuple[Word, ...]
    assigned: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    source: str = ""

    @property
    def whole(self) -> str:
        """The command with all its redirections."""
        outside = [each.source for each in self.redirects if each.is_outside]
        return " ".join(filter(None, (self.source, *outside)))


@dataclass(frozen=True, slots=True)
class Script:
    """A command line.

    Attributes:
        commands: every simple command in order, those of substitutions and functions included.
        is_complete: the parser understood all of it.
        is_plain: it has nothing but programs with their arguments and redirections, one after
            another or in pipes; no loops, tests, functions or expansions.
        is_fork_bomb: a function starts itself in the background or in a pipe.
    """

    commands: tuple[Command, ...]
    is_complete: bool
    is_plain: bool = False
    is_fork_bomb: bool = False


def parse_script(text: str) -> Script:
    """Return what the shell would run for `text`."""
    apart = _FOREIGN.sub(_spell_out, text)
    shown, seams = _joined_lines(apart, _literal(apart, _parse(apart)))
    root = _parse(shown)
    literal = _literal(shown, root)
    nodes = list(_walk(root))
    # Lines that were joined elsewhere than bash joins them were not read as bash reads them.
    is_joined = not _joined_lines(shown, literal)[1] and not any(literal[seam] for seam in seams)
    lines = shown.split("\n")
    return Script(
        commands=tuple(_collect(root)),
        is_complete="\0" not in text
        and not root.has_error
        and is_joined
        and not any(_is_unread(node) or _ends_elsewhere(node, lines) for node in nodes),
        is_plain=all(node.type in _PLAIN_NODES for node in nodes),
        is_fork_bomb=any(
            node.type == "function_definition" and _starts_itself(node) for node in nodes
        ),
    )


def _parse(shown: str) -> Node:
    return Parser(_language()).parse(shown.encode("ascii")).root_node


def _spell_out(found: re.Match[str]) -> str:
    escape, blank, foreign = found.groups(default="")
    return f"{escape}\1{ord(blank or foreign):x}\2"


def _literal(shown: str, root: Node) -> bytearray:
    """Return for each character, and the end, whether a backslash at the end of a line stays."""
    mask = bytearray(len(shown) + 1)
    for node in _walk(root):
        body = _child(node, "heredoc_body") if node.type == "heredoc_redirect" else None
        text = body if body and _is_quoted(node) else node
        if text is not node or node.type in _LITERAL_NODES:
            mask[text.start_byte : text.end_byte] = b"\1" * (text.end_byte - text.start_byte)
    return mask


def _joined_lines(shown: str, literal: bytearray) -> tuple[str, list[int]]:
    """Return `shown` with the lines joined that are continued, and where they were joined."""
    parts: list[str] = []
    seams: list[int] = []
    end = length = 0
    for continuation in _CONTINUATION.finditer(shown):
        at = continuation.end() - 2
        if not literal[at]:
            parts.append(shown[end:at])
            length += at - end
            seams.append(length)
            end = continuation.end()
    return "".join([*parts, shown[end:]]), seams


@lru_cache(maxsize=1)
def _language() -> Language:
    return Language(tree_sitter_bash.language())


def _walk(root: Node) -> Iterator[Node]:
    """Yield all nodes, parents first; without recursion, because the depth is unlimited."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.named_children))


def _collect(root: Node) -> list[Command]:
    """Return all simple commands, each with the redirections around it.

    From the top, because the parser looks for a node's parent through the whole tree. Redirections
    behind a list or a pipe belong to its last command, those behind a group to all in it.
    """
    found: list[Command] = []
    waiting: list[tuple[Node, Node | None, tuple[Redirect, ...], tuple[Redirect, ...]]]
    waiting = [(root, None, (), ())]
    while waiting:
        node, parent, of_group, of_last = waiting.pop()
        if (command := _command_at(node, parent, (*of_last, *of_group))) is not None:
            found.append(command)
        children = node.named_children
        if node.type == "redirected_statement":
            of_last = (*_redirects(node, outside=True), *of_last)
        elif node.type == "command_substitution":
            of_group = of_last = ()
        elif node.type not in {"list", "pipeline", "negated_command"}:
            of_group, of_last = (*of_last, *of_group), ()
        for position, child in reversed(list(enumerate(children))):
            is_last = position == len(children) - 1 or node.type == "redirected_statement"
            waiting.append((child, node, of_group, of_last if is_last else ()))
    return found


def _command_at(node: Node, parent: Node | None, redirects: tuple[Redirect, ...]) -> Command | None:
    if node.type in {"command", "declaration_command", "unset_command"}:
        return _command(node, redirects)
    if node.type == "redirected_statement" and node.child_by_field_name("body") is None:
        return Command((), redirects=(*_redirects(node), *redirects), source=_text(node))
    if _is_evaluated(node):
        return Command((), redirects=redirects, source=_text(node))
    is_prefix = parent is not None and parent.type in {"command", "declaration_command"}
    if node.type == "variable_assignment" and not is_prefix:
        return Command((), assigned=(_assigned(node),), source=_text(node))
    return None


def _command(node: Node, redirects: tuple[Redirect, ...]) -> Command:
    words: list[Word] = []
    assigned: list[Word] = []
    if node.type != "command":
        words.append(Word(_text(node).split(maxsplit=1)[0]))
    for child in node.named_children:
        if child.type == "variable_assignment":
            assigned.append(_assigned(child))
        elif child.type == "command_name":
            words.append(_word(child.named_children[0]) if child.named_children else _word(child))
        elif not child.type.endswith("redirect"):
            words.append(_word(child))
    all_redirects = (*_redirects(node), *redirects)
    return Command(tuple(words), tuple(assigned), all_redirects, _text(node))


def _redirects(node: Node, *, outside: bool = False) -> tuple[Redirect, ...]:
    found: list[Redirect] = []
    for child in node.named_children:
        if child.type in _HIDDEN_INPUT:
            word = Word(_text(child), is_literal=False)
            found.append(Redirect("<<", word, _text(child), outside))
        elif child.type == "file_redirect":
            found.append(_file_redirect(child, outside=outside))
    return tuple(found)


def _file_redirect(node: Node, outside: bool) -> Redirect:  # as the field
    operator = next((_text(child) for child in node.children if not child.is_named), ">")
    target = node.child_by_field_name("destination")
    word = _word(target) if target else Word("", is_literal=False)
    return Redirect(operator, word, _text(node), outside)


def _assigned(node: Node) -> Word:
    value = node.child_by_field_name("value")
    return _word(value) if value else Word("")


def _is_evaluated(node: Node) -> bool:
    """Whether the shell evaluates text, and runs what a subscript such as ``a[$(x)]`` holds."""
    if node.type == "compound_statement" and not _text(node).startswith("(("):
        return False
    return node.type == "test_command" or (node.type in _ARITHMETIC_NODES and "[" in _text(node))


def _word(node: Node) -> Word:
    source = _text(node)
    if node.type in _STATIC_NODES:
        braces = bool(_BRACES.search(source)) and source != "{}"
        return Word(
            _ESCAPED.sub(r"\1", source), is_literal=not braces, has_glob=bool(_GLOB.search(source))
        )
    if node.type == "raw_string":
        return Word(source[1:-1])
    if node.type == "ansi_c_string":
        return _ansi_word(source[2:-1])
    if node.type in {"string", "translated_string"}:
        literal = all(child.type == "string_content" for child in node.named_children)
        body = source.removeprefix("$")[1:-1]
        return Word(_ESCAPED_IN_QUOTES.sub(r"\1", body) if literal else body, is_literal=literal)
    if node.type == "concatenation":
        return _joined(node)
    return Word(source, is_literal=False)


def _joined(node: Node) -> Word:
    parts = [_word(child) for child in node.named_children]
    children_bytes = sum(child.end_byte - child.start_byte for child in node.named_children)
    between = node.end_byte - node.start_byte - children_bytes
    return Word(
        "".join(part.text for part in parts),
        is_literal=not between and all(part.is_literal for part in parts),
        has_glob=any(part.has_glob for part in parts),
    )


def _ansi_word(body: str) -> Word:
    if not _COMMON_ESCAPES.fullmatch(body):
        return Word(body, is_literal=False)
    try:
        return Word(codecs.decode(body.encode("ascii"), "unicode_escape"))
    except ValueError:
        return Word(body, is_literal=False)


def _is_unread(node: Node) -> bool:
    """Whether the grammar reads the node and bash does not.

    The grammar takes back quotes in some places for text, and accepts a redirection whose file is
    on the next line, which is a syntax error in bash.
    """
    if node.type in {"file_redirect", "herestring_redirect"} and node.named_children:
        return node.start_point.row != node.named_children[-1].start_point.row
    if node.type == "heredoc_redirect":
        return not _is_quoted(node) and "`" in _text(node)
    return node.type == "expansion" and "`" in _text(node)


def _is_quoted(heredoc: Node) -> bool:
    """Whether the shell leaves the text of a here-document as it is."""
    start = _child(heredoc, "heredoc_start")
    return start is not None and any(mark in _text(start) for mark in "'\"\\")


def _ends_elsewhere(node: Node, lines: list[str]) -> bool:
    """Whether the grammar may find another end of a here-document than bash.

    It takes an indented delimiter for one, or one that begins a longer line, passes over one after
    a backslash, and reads less of the delimiter itself.
    """
    if node.type != "heredoc_redirect":
        return False
    start, end = _child(node, "heredoc_start"), _child(node, "heredoc_end")
    if start is None or end is None:
        return True
    row, column = start.end_point
    delimiter = _DELIMITER.fullmatch((start.text or b"").decode("ascii"))
    if delimiter is None or lines[row][column : column + 1] not in _AFTER_DELIMITER:
        return True
    found = lines[row + 1 : end.start_point.row + 1]
    if any(child.type == "<<-" for child in node.children):
        found = [line.lstrip("\t") for line in found]
    return delimiter[2] not in found or found.index(delimiter[2]) != len(found) - 1


def _child(node: Node, kind: str) -> Node | None:
    return next((child for child in node.named_children if child.type == kind), None)


def _starts_itself(function: Node) -> bool:
    name = function.child_by_field_name("name")
    body = function.child_by_field_name("body")
    if name is None or body is None:
        return False
    calls_itself = any(
        node.type == "command_name" and _text(node) == _text(name) for node in _walk(body)
    )
    spreads = any(node.type == "pipeline" for node in _walk(body)) or "&" in _text(body)
    return calls_itself and spreads


def _text(node: Node) -> str:
    """Return `node` as it was written."""
    shown = (node.text or b"").decode("ascii")
    return _SPELLED_OUT.sub(lambda spelled: chr(int(spelled[1], 16)), shown)
