"""Checks for ``nanobot doctor``: one hangs, one breaks, one passes."""

from __future__ import annotations

import asyncio

from nanobot_core import CheckResult, PluginContext


async def wait_for_ever(ctx: PluginContext) -> CheckResult:
    await asyncio.Event().wait()
    raise AssertionError


async def fail(ctx: PluginContext) -> CheckResult:
    raise RuntimeError("no nerves left")


async def pass_well(ctx: PluginContext) -> CheckResult:
    return CheckResult(status="ok", message="well")
