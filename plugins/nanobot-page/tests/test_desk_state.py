"""What the desk remembers of an installation and a sign-in, without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from nanobot_core import (
    ChannelError,
    InstallPlan,
    LoginPrompt,
    NanobotError,
    Operations,
    VersionChange,
)
from nanobot_core.testing import FakeClock, FakePluginContext
from nanobot_page.desk.channels import LEFT_S, LIMIT_S, UNSEEN_S, SignIn
from nanobot_page.desk.installing import Installation
from nanobot_page.desk.prompt import MAX_CODE_CHARS, PagePrompt, draw_code


class FakeOperations:
    """A gateway that plans, installs and signs in as a test says.

    Attributes:
        version: what a plan would install.
        go_on: set when work may end.
        fault: why an installation fails.
        installed: the plans that were carried out.
        prompts: of sign-ins.
    """

    def __init__(self) -> None:
        self.version = "1.0"
        self.go_on = asyncio.Event()
        self.fault = ""
        self.installed: list[InstallPlan] = []
        self.prompts: list[LoginPrompt] = []

    async def plan_install(self, requirement: str) -> InstallPlan:
        await self.go_on.wait()
        change = VersionChange(name=requirement, before="", after=self.version)
        return InstallPlan(
            requirement=requirement,
            environment="here",
            changes=(change,),
            plugins=(),
            digest=self.version,
        )

    async def install(self, plan: InstallPlan) -> Sequence[str]:
        await self.go_on.wait()
        if self.fault or plan.digest != self.version:
            raise NanobotError(self.fault or "it is another plan")
        self.installed.append(plan)
        return ["set a token"]

    async def sign_in(self, channel: str, prompt: LoginPrompt) -> str:
        self.prompts.append(prompt)
        if channel == "broken":
            raise ChannelError("it refuses")
        if channel == "faulty":
            raise ZeroDivisionError
        return await prompt.pasted()


@pytest.fixture
def fake() -> FakeOperations:
    return FakeOperations()


@pytest.fixture
def operations(fake: FakeOperations) -> Operations:
    return cast("Operations", fake)  # the three methods that are used


def context(folder: Path, clock: FakeClock | None = None) -> FakePluginContext:
    return FakePluginContext(folder, plugin_id="page", clock=clock or FakeClock())


async def pass_a_second(clock: FakeClock) -> None:
    """Move time on once somebody waits for it."""
    await clock.wait_for_sleepers(1)
    await clock.advance(1)


async def test_a_plan_that_changed_meanwhile_is_shown_again_and_not_installed(
    tmp_path: Path, fake: FakeOperations, operations: Operations
) -> None:
    async with context(tmp_path) as ctx:
        installation = Installation(ctx)
        fake.go_on.set()
        assert await installation.plan(operations, "acme")
        fake.version = "1.1"
        assert await installation.install(operations, "1.0")
        now = installation.state
        assert (now.phase, now.plan and now.plan.digest, fake.installed) == ("planned", "1.1", [])
        assert "nothing was installed" in now.note
        assert not await installation.install(operations, "1.0")  # a page that shows the first plan
        assert await installation.install(operations, "1.1")
        assert (installation.state.phase, installation.state.todo) == (
            "installed",
            ("set a token",),
        )
    assert [plan.digest for plan in fake.installed] == ["1.1"]


async def test_an_installation_that_fails_says_why(
    tmp_path: Path, fake: FakeOperations, operations: Operations
) -> None:
    async with context(tmp_path) as ctx:
        installation = Installation(ctx)
        fake.go_on.set()
        fake.fault = "the disk is full"
        await installation.plan(operations, "acme")
        await installation.install(operations, "1.0")
        assert installation.state.phase == "failed"
        assert "the disk is full" in installation.state.note


async def test_one_installation_runs_at_a_time_and_can_be_cancelled(
    tmp_path: Path, operations: Operations
) -> None:
    async with context(tmp_path) as ctx:
        installation = Installation(ctx)
        assert await installation.plan(operations, "acme")
        assert not await installation.plan(operations, "other")
        assert (installation.state.phase, installation.state.requirement) == ("planning", "acme")
        installation.cancel()
        await ctx.settle()
        ended = installation.state
        assert (ended.phase, "was cancelled" in ended.note) == ("failed", True)
        installation.cancel()
        assert installation.state.phase == "idle"


async def test_a_sign_in_takes_what_is_pasted_when_it_asks(
    tmp_path: Path, operations: Operations
) -> None:
    async with context(tmp_path) as ctx:
        sign_in = SignIn(ctx)
        assert not sign_in.prompt.paste("too early")
        assert await sign_in.begin(operations, "pigeon")
        assert not await sign_in.begin(operations, "other")
        assert sign_in.prompt.paste("Charlie")
        assert not sign_in.prompt.paste("twice")
        await ctx.settle()
        assert (sign_in.phase, sign_in.note) == ("done", "Charlie")


async def test_a_sign_in_that_fails_says_why(tmp_path: Path, operations: Operations) -> None:
    async with context(tmp_path) as ctx:
        sign_in = SignIn(ctx)
        await sign_in.begin(operations, "broken")
        await ctx.settle()
        assert (sign_in.phase, sign_in.note) == ("failed", "it refuses")


@pytest.mark.parametrize(
    ("keeps", "leaves", "after_s", "reason"),
    [
        (False, True, LEFT_S, "page was closed"),
        (False, False, UNSEEN_S, "page was closed"),
        (True, False, LIMIT_S + 1, "within 10 minutes"),
    ],
)
async def test_a_sign_in_ends_when_nobody_looks_and_at_its_limit(
    tmp_path: Path,
    operations: Operations,
    keeps: bool,
    leaves: bool,
    after_s: float,
    reason: str,
) -> None:
    clock = FakeClock()
    async with context(tmp_path, clock) as ctx:
        sign_in = SignIn(ctx)
        await sign_in.begin(operations, "pigeon")
        if leaves:
            sign_in.leave()
        while clock.monotonic_s() < after_s:
            assert sign_in.phase == "waiting"
            if keeps:
                sign_in.keep()
            await pass_a_second(clock)
        await ctx.settle()
        assert sign_in.phase == "failed"
        assert reason in sign_in.note


async def test_a_page_that_is_loaded_again_keeps_its_sign_in(
    tmp_path: Path, operations: Operations
) -> None:
    clock = FakeClock()
    async with context(tmp_path, clock) as ctx:
        sign_in = SignIn(ctx)
        await sign_in.begin(operations, "pigeon")
        sign_in.leave()
        sign_in.keep()
        for _ in range(int(LEFT_S) + 2):
            await pass_a_second(clock)
        assert sign_in.phase == "waiting"
        sign_in.cancel()
        await ctx.settle()
        assert sign_in.note == "It was cancelled."


async def test_a_code_is_drawn_without_its_text() -> None:
    drawn = draw_code("2@<script>alert(1)</script>")
    assert drawn.startswith("<svg")
    assert "script" not in drawn
    assert drawn != draw_code("2@other")


async def test_a_code_that_is_too_long_is_explained() -> None:
    prompt = PagePrompt()
    await prompt.scan("2@code")
    await prompt.scan("x" * (MAX_CODE_CHARS + 1))
    assert not prompt.picture
    assert "too long" in prompt.notes[-1]


async def test_only_addresses_of_pages_become_links() -> None:
    prompt = PagePrompt()
    await prompt.show("javascript:alert(1)", limit_s=60)
    assert not prompt.has_link
