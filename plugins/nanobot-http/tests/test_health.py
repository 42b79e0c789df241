"""What the server tells about the gateway."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core import BusDepth, GatewayTotals, RunState, RunStatus, Usage
from nanobot_core.testing import FakeGateway

if TYPE_CHECKING:
    from conftest import Serve


def _channel(name: str, state: RunState) -> RunStatus:
    return RunStatus(
        name=name,
        kind="channel",
        plugin=name,
        state=state,
        since=datetime(2026, 1, 1, tzinfo=UTC),
        restarts=3,
        last_error="token 12345:canary was refused",
    )


def _set(gateway: FakeGateway, *running: RunStatus, ready: bool = True) -> None:
    gateway.current = replace(gateway.current, running=running, ready=ready)


async def test_health_says_that_the_process_answers(serve: Serve) -> None:
    async with serve() as served:
        _set(served.gateway, _channel("telegram", "failed"), ready=False)
        answer = await served.client.get("/health")
        assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


async def test_ready_needs_the_gateway_and_every_channel(serve: Serve) -> None:
    async with serve() as served:
        for ready, state, status in (
            (True, "running", 200),
            (True, "waiting", 200),
            (True, "failed", 503),
            (False, "running", 503),
        ):
            _set(served.gateway, _channel("telegram", state), ready=ready)  # type: ignore[arg-type]
            answer = await served.client.get("/health/ready")
            assert (answer.status_code, answer.json()["ready"]) == (status, status == 200)


async def test_details_name_states_and_no_reasons(serve: Serve) -> None:
    async with serve() as served:
        _set(served.gateway, _channel("telegram", "running"))
        answer = await served.client.get("/health/ready")
        assert answer.json()["running"] == [
            {"kind": "channel", "name": "telegram", "state": "running", "restarts": 3}
        ]
        assert "canary" not in answer.text + (await served.client.get("/metrics")).text


async def test_what_comes_through_a_proxy_needs_the_secret_for_details(serve: Serve) -> None:
    forwarded = {"x-forwarded-for": "203.0.113.9"}
    async with serve() as served:
        answer = await served.client.get("/health/ready", headers=forwarded)
        assert (answer.status_code, answer.json()) == (200, {"ready": True})
        assert (await served.client.get("/metrics", headers=forwarded)).status_code == 401
        assert (
            await served.client.get("/metrics", headers={**forwarded, **served.token})
        ).is_success


async def test_a_server_that_others_reach_shows_metrics_with_the_secret_only(
    serve: Serve,
) -> None:
    async with serve(trusted_proxies=["127.0.0.1"]) as served:
        assert (await served.client.get("/metrics")).status_code == 401
        assert (await served.client.get("/metrics", headers=served.token)).is_success


async def test_metrics_report_queue_turns_channels_uptime_and_answers(serve: Serve) -> None:
    async with serve() as served:
        served.gateway.current = replace(
            served.gateway.current,
            running=(_channel("telegram", "running"), _channel('od"d', "failed")),
            depth=BusDepth(inbound=4, outbound=5, dead=6),
            turns=2,
            totals=GatewayTotals(
                turns=3, turns_s=4.5, failed_turns=1, usage=Usage(prompt_tokens=70)
            ),
        )
        await served.clock.advance(90)
        await served.client.get("/nothing")
        answer = await served.client.get("/metrics")
        lines = answer.text.splitlines()
        for line in (
            "nanobot_ready 1.0",
            "nanobot_uptime_seconds 90.0",
            "nanobot_turns 2.0",
            "nanobot_turn_seconds_count 3.0",
            "nanobot_turn_seconds_sum 4.5",
            "nanobot_failed_turns_total 1.0",
            "nanobot_prompt_tokens_total 70.0",
            'nanobot_queue_messages{queue="inbound"} 4.0',
            'nanobot_queue_messages{queue="dead"} 6.0',
            'nanobot_up{kind="channel",name="telegram"} 1.0',
            'nanobot_up{kind="channel",name="od\\"d"} 0.0',
            'nanobot_restarts_total{kind="channel",name="telegram"} 3.0',
            'nanobot_http_requests_total{status="404"} 1.0',
        ):
            assert line in lines


async def test_health_is_only_read(serve: Serve) -> None:
    async with serve() as served:
        assert (await served.client.post("/health")).status_code == 404
        assert (await served.client.head("/health")).status_code == 200


async def test_the_address_stands_in_a_file_while_the_server_runs(
    serve: Serve, tmp_path: Path
) -> None:
    async with serve() as served:
        file = served.ctx.data_dir / "address"
        assert file.read_text("utf-8").strip() == str(served.client.base_url).rstrip("/")
    assert not file.exists()
