"""Runs of jobs: when they start, how they end, and what happens after a pause."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

from nanobot_core import Requester
from nanobot_cron.job import Cron

Home: TypeAlias = Any
"""Of conftest.py, which cannot be imported."""


async def test_a_job_runs_at_each_slot_for_its_chat(home: Home, chat: Requester) -> None:
    async with home.process() as process:
        job = await process.jobs.add(
            message="Say hello", schedule=Cron(expression="30 * * * *"), requester=chat
        )
        assert job.state.next_at == home.clock.now() + timedelta(minutes=30)

        await process.advance(1_799)
        assert home.gateway.published == []
        await process.advance(1)

        (message,) = home.gateway.published
        assert "Say hello" in message.content
        assert "Nobody is writing" in message.content
        assert message.assignment is not None
        assert message.assignment.requester == chat
        assert message.assignment.session_key == f"cron:{job.id}"
        assert message.assignment.parent == chat.session_key
        assert not message.assignment.admits(["cron"])
        await process.finish(message)
        (run,) = (await process.state(job.id)).runs
        assert run.status == "ok"
        assert run.slot == home.clock.now()
        await process.advance(3_600)
        assert len(home.gateway.published) == 2
