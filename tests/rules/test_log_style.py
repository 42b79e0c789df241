"""Log messages are literals in brace style."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.checks.logs import log_findings
from tests.rules.checks.sample import write_tree

HERE = "plugins/nanobot-a/src/nanobot_a/client.py"


def test_all_log_calls_are_in_brace_style(repository: Path) -> None:
    assert log_findings(repository) == []


@pytest.mark.parametrize(
    "call",
    [
        "logger.info(f'{x} came')",
        "logger.bind(a=1).warning(f'{x} came')",
        "self._log.error('%s came', x)",
        "logger.log('INFO', 'came ' + x)",
        "logger.opt(exception=True).debug('{} came'.format(x))",
        "logger.error(text)",
        "logger.exception()",
    ],
)
def test_other_styles_are_named(tmp_path: Path, call: str) -> None:
    (found,) = log_findings(write_tree(tmp_path, {HERE: call}))

    assert found.startswith(f"{HERE}:1: ")


@pytest.mark.parametrize(
    "call",
    [
        "logger.info('{} of 100% came', x)",
        "logger.bind(a=1).log('INFO', 'came')",
        "math.log(2)",
        "context.error(text)",
    ],
)
def test_brace_style_and_other_calls_pass(tmp_path: Path, call: str) -> None:
    assert log_findings(write_tree(tmp_path, {HERE: call})) == []
