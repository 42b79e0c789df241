"""The log: what it holds, and what it must not hold."""

from __future__ import annotations

import json
import stat

from tests.integration.cli.conftest import CONFIG, CommandLine


def test_the_log_has_the_turn_and_the_masked_key(nanobot: CommandLine) -> None:
    nanobot("agent", "-m", "refuse", code=1)
    file = nanobot.home / "logs" / "nanobot.log"
    text = file.read_text()

    assert "session=cli:direct turn=" in text
    assert "key-of-the-test-7" not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_log_is_json_lines_when_asked_for(nanobot: CommandLine) -> None:
    nanobot.configure(f"{CONFIG}logging: {{json: true, level: DEBUG}}\n")
    nanobot("agent", "-m", "refuse", code=1)
    lines = (nanobot.home / "logs" / "nanobot.log").read_text().splitlines()
    records = [json.loads(line) for line in lines]

    assert any(record.get("session") == "cli:direct" for record in records)
    assert any("Traceback" in record.get("exception", "") for record in records)


def test_there_is_no_file_when_it_is_switched_off(nanobot: CommandLine) -> None:
    nanobot.configure(f"{CONFIG}logging: {{file: false}}\n")
    nanobot("agent", "-m", "refuse", code=1)

    assert not (nanobot.home / "logs").exists()
