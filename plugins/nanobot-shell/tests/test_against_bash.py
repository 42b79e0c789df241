"""What bash runs, the guard has read, or it says that it could not read the line.

The lines are run by a real bash, which finds no program and knows one function, the canary.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nanobot_shell.reading import read_command_line

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")
CANARY = "canary"
LIMIT_S = 30.0
SETTING = f"""
exec 9>&1 >/dev/null 2>/dev/null
{CANARY}() {{ builtin echo "$NUMBER" >&9; }}
ulimit -t 5
"""
HIDDEN = [
    "echo a\v# ; canary",
    "echo a\f# ; canary",
    "echo a\r# ; canary",
    "echo \\ # ; canary",
    "echo \\\t# ; canary",
    "echo \\\\\\ # ; canary",
    "echo \\\\\ncanary",
    "# a\\\ncanary",
    "cat <<'E'\na\\\nE\ncanary\nE\n",
    "cat <<E\n$(can\\\nary)\nE\n",
    *(
        f"cat {start}\n{early}\necho '\n{end}\ncanary\n'\n"
        for start, early, end in (
            ("<<E", " E", "E"),
            ("<<E", "\tE", "E"),
            ("<<E", "Ex", "E"),
            ("<<E", "E ", "E"),
            ("<<E", "\u3000E", "E"),
            ("<<-E", " E", "E"),
            ("<<-E", "\tEx", "E"),
            ("<<E\v", "E", "E\v"),
            ('<<E"F"', 'E"F"', "EF"),
            ("<<'E'x", "E", "Ex"),
            ("<<E;", "E;", "E"),
            ("<<é", "é ", "é"),
        )
    ),
]
"""Lines with a command that bash runs and a reader may take for a comment or for text."""

COMMANDS = ["echo a", "cat", CANARY, "x=1", "[[ a ]]", "a", "echo $x"]
PIECES = [" #", " \\ #", "\r#", "\v#", " '", ' "', "\\", "\\\\", "\\\n", "\\\\\n", "\\\\\\\n"]
PIECES += [" $'\\'", "$(echo ", "`echo ", " <<E", " <<'E'", " <<-E", ' <<"E"', " <<\\E", ' <<E"F"']
PIECES += [" <<E;", " <<E\r", "é", " \u3000#", "(", ")", ";", "\t", "a#", "\\#", " -", "'a'", '"a"']
PIECES += ["$x", "${x", "<<<a", " $((1 ", "))", "&& \\\n", "${#", "[a]", "!", "*"]
LINES = ["E", "\tE", " E", "Ex", "E ", "E\r", "E)", "EF", "'", '"', ")", "`", CANARY, "echo '"]
LINES += ["a\\", "# a\\", "# '", "echo a \\", "a'b", "E;", "\\E", "E\\"]
_WRITTEN = st.lists(
    st.sampled_from(LINES)
    | st.just(CANARY)
    | st.tuples(st.sampled_from(COMMANDS), st.lists(st.sampled_from(PIECES), max_size=4)).map(
        lambda drawn: drawn[0] + "".join(drawn[1])
    ),
    min_size=2,
    max_size=7,
).map("\n".join)


def singing(texts: Sequence[str], folder: Path) -> list[str]:
    """Return those of `texts` in which bash runs the canary."""
    assert BASH is not None
    runs = "".join(
        f'(NUMBER={number}; builtin eval "$TEXT_{number}") </dev/null\n'
        for number in range(len(texts))
    )
    done = subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", SETTING + runs],
        env={"PATH": "/nonexistent"}
        | {f"TEXT_{number}": text for number, text in enumerate(texts)},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    run = {int(number) for number in done.stdout.split()}
    assert run <= set(range(len(texts)))
    return [texts[number] for number in run]


def is_seen(text: str) -> bool:
    reading = read_command_line(text)
    is_unread = not reading.script.is_complete or reading.has_computed_program
    return is_unread or any(step.name == CANARY for step in reading.steps)


@pytest.mark.parametrize("text", HIDDEN)
def test_what_bash_runs_is_seen_or_called_unreadable(text: str, tmp_path: Path) -> None:
    assert singing([text], tmp_path) == [text]
    assert is_seen(text)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_WRITTEN, min_size=50, max_size=50))
def test_nothing_is_hidden_in_random_lines(tmp_path: Path, texts: list[str]) -> None:
    assert [text for text in singing(texts, tmp_path) if not is_seen(text)] == []
