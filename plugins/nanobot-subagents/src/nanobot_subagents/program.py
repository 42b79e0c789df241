"""Subagents for programs that use the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import Requester

if TYPE_CHECKING:
    from nanobot_core import Nanobot, TurnOutcome


async def delegate(
    bot: Nanobot, task: str, *, agent: str = "", label: str = "", session: str = "sdk:default"
) -> TurnOutcome:
    """Have a subagent do a task, and return the outcome.

    The settings of section ``subagents`` apply. Calls may run at the same time.

    Args:
        bot: a started agent, with this plugin.
        task: what to do; the subagent sees nothing else.
        agent: name of a profile, or empty for a general subagent.
        label: a few words that ``/subagents`` shows.
        session: session whose budget pays for it.

    Returns:
        The outcome. Its `reply` is the result, its `stop_reason` says whether it is complete, and
        its `error` why the run failed.

    Raises:
        ToolInputError: the profile is unknown.
        ToolFailed: too many runs wait, a person stopped it, or its time is up.
        PluginError: the plugin is not enabled.

    Cancellation:
        The run is ended.
    """
    from nanobot_subagents.order import Order, run_for
    from nanobot_subagents.runs import Runs

    ctx = await bot.plugins.context_for("subagents")
    requester = Requester(
        channel="sdk",
        chat_id="default",
        sender_id="program",
        session_key=session,
        authority="machine",
    )
    order = Order(
        kind="delegate",
        task=task,
        requester=requester,
        workspace=ctx.workspace,
        agent=agent,
        label=label,
    )
    _, outcome = await ctx.shared(Runs).delegate(await run_for(ctx, order))
    return outcome
