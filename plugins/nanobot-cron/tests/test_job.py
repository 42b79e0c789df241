"""The form in which jobs are stored."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from nanobot_core import Requester, ToolRule
from nanobot_cron.job import At, Cron, Job

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_job_is_read_as_it_was_written_with_keys_that_are_unknown() -> None:
    job = Job(
        id="a",
        schedule=Cron(expression="0 7 * * *"),
        message="Say good morning",
        requester=Requester(channel="telegram", tools=(ToolRule(deny=("exec",)),)),
        created_at=NOW,
        updated_at=NOW,
    )
    stored = {**job.model_dump(mode="json"), "colour": "red"}

    read = Job.model_validate(stored)

    assert read.requester == job.requester
    assert read.schedule == job.schedule
    assert read.model_dump(mode="json") == stored


@pytest.mark.parametrize("at", ["9999-12-31T23:59Z", "9999-12-31T23:59-23:00", "0001-01-01T00:00Z"])
def test_a_time_that_some_time_zones_cannot_show_is_refused(at: str) -> None:
    with pytest.raises(ValidationError, match="out of range"):
        At.model_validate({"at": at})
