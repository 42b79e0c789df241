"""The tool contract holds for a good tool, and each of its tests fails for the tool it is about."""

from __future__ import annotations

import textwrap

import pytest

pytest_plugins = ["pytester"]
GOOD = """
    class Subject(Tool):
        name = "subject"
        description = "Read a note."
        parameters = {
            "type": "object",
            "properties": {"path": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["path"],
            "additionalProperties": False,
        }
        read_only = True

        async def execute(self, context, arguments):
            await context.progress(f"reading for {context.session_key}")
            for _ in range(100):
                await asyncio.sleep(0)
            try:
                file = context.workspace / arguments["path"]
                return file.read_text() * arguments.get("count", 1)
            except (OSError, ValueError) as error:
                raise ToolFailed("cannot read the note") from error
"""
DESCRIPTION_THAT_CHANGES = """    @property
        def description(self):
            Subject.reads = getattr(Subject, 'reads', 0) + 1
            return f'Read {Subject.reads}.'
"""
NAP_THAT_CANNOT_BE_CANCELLED = """    async def nap(self):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass

    """
FRAME = """
import asyncio
from nanobot_core import Tool, ToolFailed, ToolResult
from nanobot_core.testing import ToolContract

{subject}

class TestSubject(ToolContract):
    sample_arguments = {{"path": "note.txt", "count": "2"}}

    def make_tool(self, context):
        return Subject()

    def prepare(self, workspace):
        (workspace / "note.txt").write_text("note")
"""


def outcomes_of(pytester: pytest.Pytester, subject: str) -> tuple[dict[str, int], set[str]]:
    pytester.makepyfile(FRAME.format(subject=textwrap.dedent(subject)))
    result = pytester.runpytest_inprocess("-q", "--import-mode=importlib", "-p", "no:cacheprovider")
    failed = {
        line.split("::")[-1].split(" ")[0] for line in result.outlines if line.startswith("FAILED")
    }
    return result.parseoutcomes(), failed


def changed(*replacements: tuple[str, str]) -> str:
    subject = GOOD
    for old, new in replacements:
        assert old in subject
        subject = subject.replace(old, new)
    return subject


def test_a_good_tool_passes(pytester: pytest.Pytester) -> None:
    outcomes, _ = outcomes_of(pytester, GOOD)

    assert outcomes == {"passed": 8}


@pytest.mark.parametrize(
    ("subject", "failing"),
    [
        (
            changed(('"required"', '"anyOf": [{}], "required"')),
            "test_definition_suits_the_known_model_services",
        ),
        (
            changed(
                (
                    '    description = "Read a note."',
                    DESCRIPTION_THAT_CHANGES,
                )
            ),
            "test_definition_is_plain_data_and_the_same_each_time",
        ),
        (
            changed(('"count": {"type": "integer"}', '"count": {"type": "boolean"}')),
            "test_sample_arguments_are_accepted_and_casting_them_changes_nothing_more",
        ),
        (
            changed(("return file.read_text()", "return ToolResult(5, data={1, 2}) or ''")),
            "test_sample_call_gives_a_typed_and_bounded_result",
        ),
        (
            changed(
                ("await asyncio.sleep(0)", "await self.nap()"),
                (
                    "    async def execute",
                    NAP_THAT_CANNOT_BE_CANCELLED + "    async def execute",
                ),
            ),
            "test_cancelling_a_call_ends_it_at_once",
        ),
        (
            changed(
                ('await context.progress(f"reading for {context.session_key}")', ""),
                (
                    "for _ in range",
                    "self.session = context.session_key\n            for _ in range",
                ),
                ("return file", "return self.session + file"),
            ),
            "test_calls_of_two_sessions_side_by_side_do_not_mix",
        ),
        (
            changed(("return file", "(context.workspace / 'log').write_text('x'); return file")),
            "test_read_only_call_changes_nothing",
        ),
        (
            changed(("(OSError, ValueError)", "OSError")),
            "test_wrong_typed_arguments_raise_nothing_but_tool_errors",
        ),
    ],
)
def test_a_tool_that_breaks_a_promise_fails_the_test_of_it(
    pytester: pytest.Pytester, subject: str, failing: str
) -> None:
    _, failed = outcomes_of(pytester, subject)

    assert failing in failed


def test_a_tool_that_changes_things_is_not_asked_to_be_read_only(
    pytester: pytest.Pytester,
) -> None:
    outcomes, _ = outcomes_of(pytester, changed(("read_only = True", "read_only = False")))

    assert outcomes == {"passed": 7, "skipped": 1}


def test_a_subclass_may_not_rewrite_a_test(pytester: pytest.Pytester) -> None:
    frame = FRAME.format(subject=textwrap.dedent(GOOD))
    pytester.makepyfile(f"{frame}    test_cancelling_a_call_ends_it_at_once = None")

    result = pytester.runpytest_inprocess("-q", "--import-mode=importlib", "-p", "no:cacheprovider")

    result.stdout.fnmatch_lines(["*TestSubject changes tests of its contract: test_cancelling*"])
