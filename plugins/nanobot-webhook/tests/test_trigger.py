"""The trigger: requests with the secret of a job start it, others do not."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import (
    BusFull,
    JsonObject,
    OutboundMessage,
    Requester,
    ToolContext,
    ToolDenied,
    TriggerEvent,
)
from nanobot_core.testing import FakePluginContext
from nanobot_webhook.trigger import Hooks, WebhookTrigger

BODY = json.dumps({"ref": "main", "what": "canary"}).encode()


OpenBench = Callable[..., AbstractAsyncContextManager[Any]]


@dataclass
class Job:
    """A job that waits for requests.

    Attributes:
        secret: as it was shown to the owner.
        stored: its options, as the plugin that keeps jobs stores them.
        events: what started it.
    """

    secret: str
    stored: JsonObject
    events: list[TriggerEvent] = field(default_factory=list)
    error: Exception | None = None

    async def fire(self, event: TriggerEvent) -> None:
        if self.error is not None:
            raise self.error
        self.events.append(event)


def call(ctx: FakePluginContext, sent: list[OutboundMessage], **facts: Any) -> ToolContext:
    async def send(message: OutboundMessage) -> None:
        sent.append(message)

    given: dict[str, Any] = {"is_owner": True, "send": send} | facts
    return ToolContext(
        session_key="cli:1",
        turn_id="t",
        call_id="c",
        workspace=ctx.workspace,
        files=ctx.files,
        **given,
    )


@asynccontextmanager
async def watched(ctx: FakePluginContext, name: str = "deploy") -> AsyncIterator[Job]:
    trigger, sent = WebhookTrigger(ctx), list[OutboundMessage]()
    stored = await trigger.check(call(ctx, sent), {"name": name})
    job = Job(sent[0].content.partition("Bearer ")[2].partition("`")[0], stored)
    async with watching(ctx, stored, job):
        yield job


@asynccontextmanager
async def watching(ctx: FakePluginContext, stored: JsonObject, job: Job) -> AsyncIterator[str]:
    """Watch with stored options; yield the secret that starts the job."""
    trigger, name = WebhookTrigger(ctx), str(stored["name"])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(trigger.watch(name, stored, job.fire))
        async with asyncio.timeout(5):
            while not (known := list(ctx.shared(Hooks).named(name))):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0)
        yield known[0][0]
        task.cancel()


def github(secret: str, body: bytes) -> dict[str, str]:
    digest = hmac.digest(secret.encode(), body, "sha256").hex()
    return {"x-hub-signature-256": f"sha256={digest}", "x-github-delivery": "d-1"}


async def test_each_way_to_prove_the_secret_starts_the_job(bench: OpenBench) -> None:
    async with bench() as it, watched(it.ctx) as job:
        for headers in (
            {"authorization": f"Bearer {job.secret}"},
            {"x-gitlab-token": job.secret},
            github(job.secret, BODY),
            it.signed(BODY, secret=job.secret),
        ):
            answer = await it.client.post("/webhook/hooks/deploy", content=BODY, headers=headers)
            assert (answer.status_code, answer.json()) == (200, {"stored": True})

        assert len(job.events) == 4
        assert all("canary" in event.text for event in job.events)


async def test_nothing_else_starts_it(bench: OpenBench) -> None:
    async with bench() as it, watched(it.ctx) as job, watched(it.ctx, "other") as other:
        right = {"authorization": f"Bearer {job.secret}"}
        for path, headers, status in (
            ("/webhook/hooks/deploy", {}, 401),
            ("/webhook/hooks/deploy", {"authorization": f"Bearer {other.secret}"}, 401),
            ("/webhook/hooks/deploy", {"authorization": f"Bearer {job.secret}x"}, 401),
            ("/webhook/hooks/deploy", {"authorization": "Bearer \u00e9"}, 401),
            ("/webhook/hooks/deploy", github(job.secret, b"other"), 401),
            ("/webhook/hooks/deploy", it.signed(BODY, secret=job.secret, age_s=3_600), 401),
            ("/webhook/hooks/unknown", right, 401),
            ("/webhook/hooks/deploy/x", right, 401),
            ("/webhook/hooks/", right, 401),
        ):
            sent = {name: value.encode() for name, value in headers.items()}
            answer = await it.client.post(path, content=BODY, headers=sent)
            assert answer.status_code == status, path
        assert (await it.client.get("/webhook/hooks/deploy", headers=right)).status_code == 405
        assert job.events == other.events == []


async def test_a_repeated_delivery_has_the_same_event_id(bench: OpenBench) -> None:
    async with bench() as it, watched(it.ctx) as job:
        right = {"authorization": f"Bearer {job.secret}"}
        for delivery in ({"idempotency-key": "a"}, {"idempotency-key": "a"}, {}, {}):
            await it.client.post("/webhook/hooks/deploy", content=BODY, headers=right | delivery)

        first, second, *others = [event.id for event in job.events]
        assert first == second
        assert len({first, *others}) == 3


async def test_size_and_rate_are_limited(bench: OpenBench) -> None:
    section = {"max_event_bytes": 100, "max_events_per_minute": 2}
    async with bench(**section) as it, watched(it.ctx) as job:
        right = {"authorization": f"Bearer {job.secret}"}
        statuses = [
            (await it.client.post("/webhook/hooks/deploy", content=body, headers=right)).status_code
            for body in (b"x" * 101, b"1", b"2", b"3")
        ]
        await it.clock.advance(60)
        last = await it.client.post("/webhook/hooks/deploy", content=b"4", headers=right)

        assert statuses == [413, 200, 200, 429]
        assert last.status_code == 200
        assert len(job.events) == 3


async def test_what_cannot_be_stored_is_to_be_sent_again(bench: OpenBench) -> None:
    async with bench() as it, watched(it.ctx) as job:
        job.error = BusFull(10, 10)
        answer = await it.client.post(
            "/webhook/hooks/deploy", headers={"authorization": f"Bearer {job.secret}"}
        )
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


async def test_the_secret_survives_a_restart_and_is_not_in_the_options(
    tmp_path: Path, bench: OpenBench
) -> None:
    async with bench() as it, watched(it.ctx) as job:
        assert job.secret not in json.dumps(job.stored)
        assert len(base64.b64decode(job.secret.removeprefix("whsec_"))) == 32
        again = FakePluginContext(tmp_path, plugin_id="webhook")
        async with watching(again, job.stored, job) as secret:
            assert secret == job.secret
        assert (
            WebhookTrigger(again).describe(job.stored) == "a program posts to /webhook/hooks/deploy"
        )


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"is_owner": False}, "only the owner"),
        ({"requester": Requester(is_group=True)}, "private chat"),
    ],
)
async def test_only_the_owner_alone_learns_a_secret(
    tmp_path: Path, facts: dict[str, Any], reason: str
) -> None:
    ctx, sent = FakePluginContext(tmp_path), list[OutboundMessage]()
    with pytest.raises(ToolDenied, match=reason):
        await WebhookTrigger(ctx).check(call(ctx, sent, **facts), {"name": "deploy"})
    assert sent == []
