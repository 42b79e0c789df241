"""What importing `nanobot_core.net` spares a process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import nanobot_core.net
import httpx
print(httpx.Client.__name__, sorted({"rich", "pygments", "click"} & set(sys.modules)))
"""


def test_httpx_does_not_import_its_command_line() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=30
    )
    assert run.stdout == "Client []\n"
