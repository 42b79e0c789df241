"""A program that uses the SDK reads warnings of nanobot, and its own records as before."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from loguru import logger
{configure}
from nanobot_core.app.logging import quiet_unless_configured

def log(name):
    exec(compile("logger.debug('low')\\nlogger.warning('high')", name, "exec"),
         {{"logger": logger, "__name__": name}})

quiet_unless_configured()
log("nanobot_core.turns"), log("nanobot_web"), log("program")
"""


def records(configure: str = "") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(configure=configure)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return [
        f"{line.split('|')[2].split(':')[0].strip()} {line[-4:]}"
        for line in done.stderr.splitlines()
    ]


def test_only_warnings_of_nanobot_are_logged() -> None:
    warnings = ["nanobot_core.turns high", "nanobot_web high"]

    assert records() == [*warnings, "program  low", "program high"]


def test_the_sinks_of_a_program_get_everything() -> None:
    own = "import sys; logger.remove(); logger.add(sys.stderr)"

    assert len(records(own)) == 6
