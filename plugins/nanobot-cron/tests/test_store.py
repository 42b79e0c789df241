"""The file with the jobs: damage, other writers, other versions."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nanobot_core import Requester
from nanobot_core.testing import FakePluginContext
from nanobot_cron.job import At, Cron, Every, Job
from nanobot_cron.jobs import JobsUnavailable
from nanobot_cron.settings import CronSettings
from nanobot_cron.store import Book, JobStore

Home: TypeAlias = Any
FullDisk: TypeAlias = Callable[[], AbstractContextManager[None]]
HOURLY = Cron(expression="0 * * * *")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def file_of(home: Home) -> Path:
    path: Path = home.folder / "data" / "cron" / "jobs.json"
    return path


async def fill(home: Home, chat: Requester, count: int = 3) -> list[str]:
    async with home.process(has_gateway=False) as process:
        return [
            (await process.jobs.add(message=f"task {number}", schedule=HOURLY, requester=chat)).id
            for number in range(count)
        ]


async def messages(process: Any) -> list[str]:  # noqa: ANN401 - of conftest.py
    return sorted(job.message for job in await process.jobs.all())


async def test_a_file_truncated_at_any_byte_keeps_the_jobs_before(
    home: Home, chat: Requester
) -> None:
    await fill(home, chat)
    whole = file_of(home).read_bytes()
    ends = [whole.index(f"task {number}".encode()) for number in range(3)]
    for cut in sorted(random.Random(1).sample(range(len(whole) - 3), 40)):
        file_of(home).write_bytes(whole[:cut])
        async with home.process(has_gateway=False) as process:
            found = await messages(process)
        lines = whole[:cut].split(b"\n")
        assert len(found) >= sum(line.endswith(b"},") for line in lines)
        assert len(found) <= sum(end < cut for end in ends)
        kept = [path.read_bytes() for path in file_of(home).parent.glob("jobs.json.corrupt-*")]
        assert whole[:cut] in kept


async def test_damage_is_reported_with_the_place_of_the_file(home: Home, chat: Requester) -> None:
    await fill(home, chat)
    file_of(home).write_bytes(b"")
    async with home.process() as process:
        assert await messages(process) == []
        (notice,) = home.gateway.notices.values()
    assert "jobs.json.corrupt-1" in notice
    assert file_of(home).with_name("jobs.json.corrupt-1").exists()


async def test_damage_while_running_costs_nothing(home: Home, chat: Requester) -> None:
    await fill(home, chat)
    async with home.process() as process:
        file_of(home).write_text("[")
        await process.jobs.add(message="task 3", schedule=HOURLY, requester=chat)
        assert len(await messages(process)) == 4
    assert len(json.loads(file_of(home).read_text())["jobs"]) == 4


async def test_damage_on_a_full_disk_loses_nothing(
    home: Home, chat: Requester, full_disk: FullDisk
) -> None:
    await fill(home, chat)
    whole = file_of(home).read_bytes()
    file_of(home).write_bytes(whole[:-40])
    async with home.process(has_gateway=False) as process:
        with full_disk():
            for _ in range(3):
                with pytest.raises(JobsUnavailable):
                    await process.jobs.all()
        assert len(await messages(process)) >= 2
    assert len(list(file_of(home).parent.glob("jobs.json.corrupt-*"))) == 1


async def test_one_broken_job_is_kept_in_the_file_beside_the_others(
    home: Home, chat: Requester
) -> None:
    ids = await fill(home, chat)
    content = json.loads(file_of(home).read_text())
    content["jobs"][1]["schedule"]["expression"] = "0 0 31 2 *"
    content["colour"] = "red"
    file_of(home).write_text(json.dumps(content, indent=2))
    async with home.process() as process:
        assert len(await messages(process)) == 2
        await process.jobs.add(message="task 3", schedule=HOURLY, requester=chat)
        assert any("not valid jobs" in text for text in home.gateway.notices.values())
    content = json.loads(file_of(home).read_text())
    assert [entry["id"] for entry in content["unreadable"]] == [ids[1]]
    assert content["colour"] == "red"
    content["unreadable"][0]["schedule"]["expression"] = "0 0 30 2,3 *"
    file_of(home).write_text(json.dumps(content))
    async with home.process() as process:
        assert len(await messages(process)) == 4


async def test_a_newer_version_is_left_untouched(home: Home, chat: Requester) -> None:
    await fill(home, chat)
    content = {**json.loads(file_of(home).read_text()), "version": 2}
    file_of(home).write_text(json.dumps(content))
    async with home.process() as process:
        with pytest.raises(JobsUnavailable, match="upgrade nanobot-cron"):
            await process.jobs.add(message="x", schedule=HOURLY, requester=chat)
        assert any("upgrade" in text for text in home.gateway.notices.values())
    assert json.loads(file_of(home).read_text()) == content
    assert list(file_of(home).parent.glob("*.corrupt-*")) == []


async def test_an_edit_while_running_is_used_and_not_lost(home: Home, chat: Requester) -> None:
    ids = await fill(home, chat)
    async with home.process() as process:
        content = json.loads(file_of(home).read_text())
        content["jobs"][0]["message"] = "edited"
        content["jobs"][0]["schedule"]["expression"] = "30 * * * *"
        del content["jobs"][1]
        file_of(home).write_text(json.dumps(content, indent=1))
        await process.jobs.enable(ids[2], False)
        await process.settle()
        jobs = {job.id: job for job in await process.jobs.all()}
        assert {job.message for job in jobs.values()} == {"edited", "task 2"}
        edited = next(job for job in jobs.values() if job.message == "edited")
        assert edited.state.next_at == home.clock.now() + timedelta(minutes=30)


async def test_a_removed_file_is_written_again(home: Home, chat: Requester) -> None:
    await fill(home, chat)
    async with home.process() as process:
        file_of(home).unlink()
        assert len(await messages(process)) == 3
    assert len(json.loads(file_of(home).read_text())["jobs"]) == 3


async def test_what_a_killed_write_left_is_removed(home: Home, chat: Requester) -> None:
    await fill(home, chat)
    left = file_of(home).with_name(".jobs.json.abc123")
    left.write_text("{")
    async with home.process(has_gateway=False) as process:
        assert len(await messages(process)) == 3
    assert not left.exists()


async def test_two_processes_do_not_lose_each_others_jobs(home: Home, chat: Requester) -> None:
    async with home.process(has_gateway=False) as one, home.process(has_gateway=False) as two:
        await asyncio.gather(
            *(
                process.jobs.add(message=f"{name} {number}", schedule=HOURLY, requester=chat)
                for name, process in (("one", one), ("two", two))
                for number in range(20)
            )
        )
        assert await messages(one) == await messages(two)
        assert len(await messages(one)) == 40


async def test_a_failed_write_changes_nothing(
    home: Home, chat: Requester, full_disk: FullDisk
) -> None:
    await fill(home, chat)
    former = file_of(home).read_bytes()
    async with home.process(has_gateway=False) as process:
        with full_disk():
            with pytest.raises(JobsUnavailable, match="No space left"):
                await process.jobs.add(message="x", schedule=HOURLY, requester=chat)
            assert len(await messages(process)) == 3
    assert file_of(home).read_bytes() == former


async def test_a_cancelled_change_does_not_stop_those_beside_it(
    home: Home, chat: Requester
) -> None:
    async with home.process(has_gateway=False) as process:
        tasks = [
            asyncio.ensure_future(
                process.jobs.add(message=f"task {number}", schedule=HOURLY, requester=chat)
            )
            for number in range(10)
        ]
        for _ in range(3):
            await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[5].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(result, Job) for result in results) >= 8
        assert len(await messages(process)) >= 8


instants = st.datetimes(
    min_value=datetime.fromisoformat("1971-01-01"),
    max_value=datetime.fromisoformat("2200-01-01"),
    timezones=st.just(UTC),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
jobs = st.builds(
    Job,
    id=st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True),
    name=texts,
    enabled=st.booleans(),
    schedule=st.one_of(
        st.builds(At, at=instants),
        st.builds(Every, seconds=st.floats(60, 1e6), anchor=instants),
        st.builds(
            Cron,
            expression=st.sampled_from(["0 7 * * *", "*/5 * * * mon"]),
            timezone=st.sampled_from(["", "Asia/Tokyo"]),
        ),
    ),
    message=texts.filter(bool),
    requester=st.builds(Requester, channel=texts, chat_id=texts, is_group=st.booleans()),
    created_at=instants,
    updated_at=instants,
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(found=st.lists(jobs, max_size=4, unique_by=lambda job: job.id), damage=st.data())
async def test_what_is_stored_is_read_and_damage_costs_at_most_the_lines_that_it_touches(
    tmp_path_factory: pytest.TempPathFactory, found: list[Job], damage: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("home")
    book = Book(jobs={job.id: job for job in found})
    async with FakePluginContext(folder, settings=CronSettings()) as ctx:
        store = ctx.shared(JobStore)
        await store.change(lambda _: (book, None))
        path = ctx.data_dir / "jobs.json"
        assert dict((await JobStore(ctx).read()).jobs) == dict(book.jobs)

        data = bytearray(path.read_bytes())
        place = damage.draw(st.integers(0, len(data) - 1))
        data[place] = damage.draw(st.integers(0, 255))
        path.write_bytes(bytes(data))
        line = bytes(data[:place]).count(b"\n")
        read = (await JobStore(ctx).read()).jobs
    hit = {line - 1, line, line - 2}
    for number, job in enumerate(found):
        assert number in hit or read.get(job.id) == job


def original(folder: Path, jobs: list[object], *, actions: str = "") -> Path:
    path = folder / "cron" / "jobs.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": 1, "jobs": jobs}))
    if actions:
        path.with_name("action.jsonl").write_text(actions)
    return path


AT_MS = int((NOW + timedelta(hours=2)).timestamp() * 1000)
DAILY: dict[str, object] = {
    "id": "abc12345",
    "name": "Morning",
    "enabled": True,
    "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "Europe/Berlin", "atMs": None},
    "payload": {
        "kind": "agent_turn",
        "message": "Say hi",
        "deliver": True,
        "channel": "chatty",
        "to": "c1",
    },
    "state": {
        "nextRunAtMs": AT_MS,
        "lastStatus": "ok",
        "runHistory": [
            None,
            {"runAtMs": "1760000000000", "status": "error", "durationMs": 1500, "error": "x"},
        ],
    },
    "createdAtMs": 1760000000000,
    "updatedAtMs": 1760000000000,
    "deleteAfterRun": False,
}
SNAKE = {
    "id": 17,
    "schedule": {"kind": "every", "every_ms": "3600000"},
    "payload": {"message": "Check", "channel": None, "to": None, "deliver": None},
    "state": {"next_run_at_ms": AT_MS},
    "created_at_ms": None,
}
STRANGER = {
    "id": "guest",
    "schedule": {"kind": "at", "atMs": AT_MS},
    "payload": {"message": "Remind", "channel": "chatty", "to": "c9", "deliver": False},
}
BROKEN: list[object] = [
    {"id": "b1", "schedule": {"kind": "cron", "expr": "* * * * * *"}, "payload": {"message": "x"}},
    {"id": "b2", "schedule": {"kind": "moon"}, "payload": {"message": "x"}},
    {"id": "b3", "schedule": {"kind": "at", "atMs": AT_MS}, "payload": {}},
    {"id": "b4", "payload": {"kind": "system_event", "message": "x"}},
    None,
    "text",
]


@pytest.mark.parametrize("place", ["", "workspace"])
async def test_the_jobs_of_the_original_are_taken_over_once(home: Home, place: str) -> None:
    path = original(home.folder / place, [DAILY, SNAKE, STRANGER, *BROKEN])
    former = path.read_bytes()
    async with home.process() as process:
        found = {job.message: job for job in await process.jobs.all()}
        assert set(found) == {"Say hi", "Check", "Remind"}
        daily, check, remind = found["Say hi"], found["Check"], found["Remind"]
        assert daily.id == "abc12345"
        assert daily.schedule == Cron(expression="0 7 * * *", timezone="Europe/Berlin")
        assert daily.requester.authority == "owner"
        assert [(run.status, run.duration_s) for run in daily.state.runs] == [("error", 1.5)]
        assert daily.state.next_at == NOW + timedelta(hours=6)
        assert (check.requester.authority, check.schedule.seconds) == ("machine", 3_600)
        assert check.state.next_at == NOW + timedelta(hours=1)
        assert (remind.requester.authority, remind.delivery) == ("guest", "never")
        assert remind.state.next_at == NOW + timedelta(hours=2)
        (notice,) = home.gateway.notices.values()
        assert "3 scheduled jobs" in notice
        assert "6 entries" in notice
        assert "b1: '* * * * * *' has 6 fields" in notice
        for job in found.values():
            await process.jobs.remove(job.id)
    async with home.process() as process:
        assert await process.jobs.all() == []
    assert path.read_bytes() == former


async def test_changes_that_the_original_has_not_merged_are_taken_over(home: Home) -> None:
    added = {**STRANGER, "id": "new"}
    lines = [
        json.dumps({"action": "add", "params": added}),
        json.dumps({"action": "del", "params": {"job_id": "abc12345"}}),
        '{"action": "add", "par',
    ]
    original(home.folder, [DAILY], actions="\n".join(lines))
    async with home.process() as process:
        assert [job.id for job in await process.jobs.all()] == ["new"]


async def test_jobs_made_while_no_gateway_of_the_original_ran_are_taken_over(home: Home) -> None:
    line = json.dumps({"action": "add", "params": DAILY})
    original(home.folder, [], actions=line).unlink()
    async with home.process() as process:
        assert [job.id for job in await process.jobs.all()] == ["abc12345"]


async def test_jobs_with_a_session_are_answered_there(home: Home) -> None:
    bound = {"sessionKey": "telegram:42", "originChannel": "telegram", "originChatId": "42"}
    payload = {"kind": "agent_turn", "message": "Water", "deliver": False, "channel": None}
    silent = {**DAILY, "id": "silent", "payload": {**payload, "channel": "telegram", "to": "42"}}
    original(home.folder, [{**DAILY, "id": "bound", "payload": {**payload, **bound}}, silent])
    async with home.process() as process:
        found = {job.id: job for job in await process.jobs.all()}
    assert found["bound"].delivery == "always"
    assert found["bound"].requester.chat_id == "42"
    assert found["silent"].delivery == "never"


@pytest.mark.parametrize("content", ["", "[", "7", '{"jobs": 7}', "[" * 100_000])
async def test_a_damaged_file_of_the_original_is_reported(home: Home, content: str) -> None:
    original(home.folder, []).write_text(content)
    async with home.process() as process:
        assert await process.jobs.all() == []
        (notice,) = home.gateway.notices.values()
        assert "not valid JSON" in notice


async def test_a_file_of_the_original_that_appears_later_is_not_taken_over(home: Home) -> None:
    async with home.process():
        pass
    original(home.folder / "workspace", [SNAKE])  # as a tool could write it
    async with home.process() as process:
        assert await process.jobs.all() == []
