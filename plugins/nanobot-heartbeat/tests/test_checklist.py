from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from nanobot_heartbeat.checklist import (
    FILE,
    MAX_BYTES,
    TEMPLATE,
    ChecklistTooLong,
    add_template,
    has_open_tasks,
    read_checklist,
)
from nanobot_heartbeat.settings import HeartbeatSettings


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n \n",
        "# Heartbeat\n\n## Active tasks\n\n## Done\n",
        "Heartbeat\n=========\n\nTasks\n---\n",
        "<!-- Write tasks\n- such as this one\n-->\n",
        "# Tasks\n<!-- never closed\n- a task",
        "- [x] ask about the weather\n* [X] done\n1. [x] also done\n",
        "- [ ]\n-\n* \n1.\n",
        "---\n***\n| --- | --- |\n```\n```\n",
        TEMPLATE.read_text("utf-8"),
        " " * MAX_BYTES,  # a search for markers from each of them would take half a minute
    ],
)
def test_what_is_no_open_task(text: str) -> None:
    assert not has_open_tasks(text)


@pytest.mark.parametrize(
    "text",
    [
        "- [ ] look at the mail",
        "Look at the mail.",
        "# Tasks\n- [x] done\n- look at the mail",
        "<!-- a comment --> look at the mail",
        "#mail is no heading",
        "- 每天早上看邮件",
        "2. [ ] mail",
        "- mail\n---\n",
    ],
)
def test_what_is_an_open_task(text: str) -> None:
    assert has_open_tasks(text)


def test_only_a_regular_file_of_a_bounded_size_is_read(tmp_path: Path) -> None:
    file = tmp_path / FILE
    assert read_checklist(tmp_path) == ""
    file.write_bytes(b"\xef\xbb\xbf# A\n- mail \xff\n")
    assert read_checklist(tmp_path) == "# A\n- mail \ufffd"

    file.write_text("- a\n" * MAX_BYTES)
    with pytest.raises(ChecklistTooLong):
        read_checklist(tmp_path)
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="not a regular file"):
        read_checklist(tmp_path)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(OSError, match="not a regular file"):
        read_checklist(tmp_path)


def test_the_template_never_replaces_a_file(tmp_path: Path) -> None:
    add_template(tmp_path)
    assert (tmp_path / FILE).read_bytes() == TEMPLATE.read_bytes()
    (tmp_path / FILE).write_text("- mine")
    add_template(tmp_path)
    assert (tmp_path / FILE).read_text() == "- mine"


@pytest.mark.parametrize(
    ("hours", "at", "is_quiet"),
    [
        (None, "03:00", False),
        ("22:00-07:00", "21:59", False),
        ("22:00-07:00", "22:00", True),
        ("22:00-07:00", "06:59", True),
        ("22:00-07:00", "07:00", False),
        ("12:30-13:30", "12:29", False),
        ("12:30-13:30", "13:29", True),
    ],
)
def test_quiet_hours_may_include_midnight(hours: str | None, at: str, is_quiet: bool) -> None:
    settings = HeartbeatSettings(quiet_hours=hours)

    assert settings.is_quiet(datetime.fromisoformat(f"2026-03-01T{at}:00+01:00")) is is_quiet


@pytest.mark.parametrize(
    "section",
    [
        {"quiet_hours": "22-7"},
        {"quiet_hours": "24:00-07:00"},
        {"quiet_hours": "07:00-07:00"},
        {"target": "telegram"},
        {"target": ":42"},
        {"interval_s": 0},
    ],
)
def test_settings_that_mean_nothing_are_refused(section: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        HeartbeatSettings.model_validate(section)
