"""Reading of command lines, also of those that nobody would write."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from nanobot_core import PathGuard
from nanobot_shell.guard import Guard
from nanobot_shell.output import KEPT_BYTES, Capture
from nanobot_shell.reading import read_command_line
from nanobot_shell.settings import ExecSettings
from nanobot_shell.syntax import parse_script

_FRAGMENTS = st.sampled_from(
    [
        "rm",
        "'",
        '"',
        "\\",
        "$(",
        ")",
        "`",
        "|",
        ";",
        "&",
        "{",
        "}",
        "<<",
        "\n",
        " ",
        "$IFS",
        "é",
        "#",
    ]
)


@given(st.text() | st.lists(_FRAGMENTS, max_size=30).map("".join))
def test_any_text_is_read_or_called_unreadable(text: str) -> None:
    reading = read_command_line(text)

    assert reading.values is None or all(isinstance(value, str) for value in reading.values)
    assert all(isinstance(step.name, str) for step in reading.steps)


@given(st.text() | st.lists(_FRAGMENTS, max_size=30).map("".join), st.booleans())
def test_guard_answers_to_any_text(command: str, must_confine: bool) -> None:
    workspace = Path("/nonexistent")
    guard = Guard(
        settings=ExecSettings(deny_patterns=("never",), allow_patterns=("*",)),
        files=PathGuard(workspace),
        must_confine=must_confine,
    )

    assert isinstance(guard.refusal(read_command_line(command), workspace), str)


@given(st.sampled_from(["{", "{1", "{1..", "-", "[[ -", "$", "x=", "cat <<E\n$"]), st.characters())
def test_characters_beyond_ascii_end_no_process(before: str, character: str) -> None:
    # The process is gone where the parser asks C of what sort they are.
    assert isinstance(read_command_line(before + character).steps, tuple)


@given(st.text(st.characters(min_codepoint=128), min_size=1) | st.just("\1e9\2"))
def test_characters_beyond_ascii_are_part_of_a_word(text: str) -> None:
    script = parse_script(f"echo {text} '{text}' \"{text}\" a{text}b x={text}")

    assert script.is_complete
    [command] = script.commands
    assert [word.text for word in command.words[1:]] == [*[text] * 3, f"a{text}b", f"x={text}"]
    assert all(word.is_literal for word in command.words)


@pytest.mark.parametrize("end", ["é", "漢字", "END"])
def test_a_here_document_ends_where_the_shell_ends_it(end: str) -> None:
    script = parse_script(f"cat <<{end}\nrm a\n{end}\nrm b\n")

    assert script.is_complete
    assert [[word.text for word in each.words] for each in script.commands] == [
        ["cat"],
        ["rm", "b"],
    ]


@given(
    st.lists(
        st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8),
        min_size=1,
        max_size=4,
    )
)
def test_quoted_words_come_out_as_the_shell_would_pass_them(words: list[str]) -> None:
    quoted = ["'" + word.replace("'", "'\"'\"'") + "'" for word in words]

    [command] = parse_script("printf " + " ".join(quoted)).commands

    assert [word.text for word in command.words[1:]] == words
    assert all(word.is_literal and not word.has_glob for word in command.words)


@pytest.mark.parametrize(
    "spelling",
    [
        r"a\ b",
        '"a b"',
        "a''b",
        r'"a\"b\$c\d"',
        r"$'a\tb\x41'",
        "a\\\nb",
        r"\a\b",
        "x=y",
        "'*'",
        "\"a\"b'c'd",
    ],
)
def test_literal_words_are_what_bash_makes_of_them(spelling: str) -> None:
    wanted = subprocess.run(
        ["/bin/bash", "-c", f"printf %s {spelling}"], capture_output=True, text=True, check=True
    ).stdout

    [command] = parse_script(f"printf {spelling}").commands

    assert command.words[1].text == wanted
    assert command.words[1].is_literal


@pytest.mark.parametrize(
    "spelling",
    [
        "$x",
        "${x}",
        "a$x",
        '"$x"',
        "$(x)",
        "`x`",
        "{a,b}",
        "a{b,c}",
        "<(x)",
        "$((1))",
        r"$'\q'",
        r"$'\x4'",
    ],
)
def test_words_that_the_shell_decides_are_not_literal(spelling: str) -> None:
    assert not parse_script(f"echo {spelling}").commands[0].words[1].is_literal


@given(st.lists(st.binary(max_size=3000), max_size=20))
def test_capture_keeps_both_ends_and_stays_small(pieces: list[bytes]) -> None:
    capture = Capture()
    for piece in pieces:
        capture.feed(piece)
    assert capture.text == b"".join(pieces).decode("utf-8", "replace")

    for number in range(200):
        capture.feed(b"%05d\n" % number * 2_000)

    assert "00000\n" in capture.text
    assert capture.text.endswith("00199\n" * 2_000)
    assert "bytes left out] …" in capture.text
    assert len(capture.text) < 4 * KEPT_BYTES


@pytest.mark.parametrize("line", ["echo x >\nfile", "cat <\nfile", "cat <<<\nfile", "2>&1 >>\n\nb"])
def test_a_redirection_to_the_next_line_is_not_understood(line: str) -> None:
    """bash reports a syntax error where the grammar takes the next line for the file."""
    assert not parse_script(line).is_complete
    assert parse_script(line.replace("\n", "")).is_complete
    assert parse_script(line.replace("\n", "\\\n")).is_complete
