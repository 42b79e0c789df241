"""Heart: runs the beats."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from nanobot_core import (
    Assignment,
    NanobotError,
    Requester,
    SessionError,
    ToolRule,
    prompt,
    shorten,
)
from nanobot_heartbeat.checklist import FILE, ChecklistTooLong, add_template, read_checklist
from nanobot_heartbeat.decision import Undecided, decide
from nanobot_heartbeat.journal import Beat, Journal
from nanobot_heartbeat.settings import HeartbeatSettings

if TYPE_CHECKING:
    from nanobot_core import AssignmentFinished, GatewayAccess, PluginContext

PENDING_LIMIT: Final = timedelta(hours=6)
"""Time after which a beat without a result no longer holds up the next one."""
UNDER_WAY = "The previous beat is still under way."
NO_GATEWAY = "The heartbeat needs a running gateway; start one with: nanobot gateway"
NO_CHAT = (
    "No model was asked, because the chat for the answer is unknown: write to the agent in a "
    "private chat, or set gateway.heartbeat.target."
)
_LINE_CHARS = 200


class Heart:
    """Runs one beat at a time; get it with ``ctx.shared(Heart)``.

    Attributes:
        settings: the plugin's settings.
        journal: the newest beats.

    Args:
        ctx: the plugin's context.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.settings: HeartbeatSettings = ctx.settings(HeartbeatSettings)
        self.journal: Journal = Journal(ctx)
        self._ctx = ctx
        self._log = ctx.logger
        self._beating = asyncio.Lock()

    async def prepare(self) -> None:
        """Create the checklist if it is missing."""
        try:
            await asyncio.to_thread(add_template, self._ctx.workspace)
        except OSError as error:
            self._log.warning("cannot create {}: {}", FILE, error)

    async def beat(self) -> str:
        """Run a beat outside quiet hours; return a line about it. Errors are logged, not raised."""
        if self.is_quiet():
            return "Quiet hours."
        return await self.trigger()

    async def trigger(self) -> str:
        """Run a beat even in quiet hours; return a line about it. Errors are logged, not raised."""
        if self._ctx.gateway is None:
            return NO_GATEWAY
        if self._beating.locked():
            return UNDER_WAY
        async with self._beating:
            try:
                return await self._beat(self._ctx.gateway)
            # An agent that is being stopped raises RuntimeError.
            except (OSError, NanobotError, ChecklistTooLong, Undecided, RuntimeError) as error:
                self._log.warning("the heartbeat did nothing: {}", error)
                return f"Nothing was done: {error}."

    async def finish(self, event: AssignmentFinished) -> None:
        """Note the result of a beat's work."""
        outcome, name = event.outcome, event.assignment.id
        if outcome.error:
            result = f"failed: {outcome.error}"
        elif outcome.stop_reason != "completed":
            result = f"ended early: {outcome.stop_reason}"
        else:
            result = outcome.reply or "done"
        if outcome.error or outcome.stop_reason != "completed":
            self._log.warning("the beat {} {}", name, result)
        await self.journal.finish(name, shorten(result, _LINE_CHARS))

    def is_quiet(self) -> bool:
        """Whether it is quiet now."""
        return self.settings.is_quiet(self._now())

    def target(self) -> tuple[str, str] | None:
        """Return channel and chat that get the answers, if known."""
        if self.settings.target is not None:
            channel, _, chat = self.settings.target.partition(":")
            return channel, chat
        return self._ctx.gateway.owners_chat if self._ctx.gateway else None

    async def _beat(self, gateway: GatewayAccess) -> str:
        checklist = await asyncio.to_thread(read_checklist, self._ctx.workspace)
        if not checklist:
            return f"{FILE} has no open task."
        now, beats = self._now(), (await self.journal.read()).beats
        if any(not each.result and abs(now - each.at) < PENDING_LIMIT for each in beats):
            return UNDER_WAY
        chat = self.target()
        await self.journal.note_chat(is_known=chat is not None)
        if chat is None:
            return NO_CHAT
        tasks = await decide(self._ctx, self.settings, _request(now, beats, checklist))
        if not tasks:
            return "Nothing is due."
        try:
            await self._ctx.agent.delete_session(self._session)
        except SessionError:
            return UNDER_WAY
        beat = Beat(id=f"{now:%Y%m%dT%H%M%S.%f}", at=now, tasks=shorten(tasks, _LINE_CHARS))
        await self.journal.put(beat)
        try:
            await gateway.assign(await self._work(beat, chat, gateway, checklist), tasks)
        except NanobotError as error:
            await self.journal.finish(beat.id, shorten(f"failed: {error}", _LINE_CHARS))
            raise
        return f"Started: {beat.tasks}"

    async def _work(
        self, beat: Beat, chat: tuple[str, str], gateway: GatewayAccess, checklist: str
    ) -> Assignment:
        channel, chat_id = chat
        key = f"{channel}:{chat_id}"
        return Assignment(
            plugin=self._ctx.id,
            id=beat.id,
            source="heartbeat",
            title="Heartbeat",
            requester=Requester(
                channel=channel,
                chat_id=chat_id,
                sender_id=self._ctx.id,
                session_key=key,
                authority="machine",
                # Others may read a chat that the settings name: no memory of the owner there.
                is_group=chat != gateway.owners_chat,
            ),
            session_key=self._session,
            parent=key,
            instructions=await asyncio.to_thread(
                prompt, self._ctx, "nanobot_heartbeat:act", checklist=checklist
            ),
            tools=(ToolRule(allow=self.settings.tools),),
            model=self.settings.model,
            max_iterations=self.settings.max_iterations,
            delivery="when_notable",
        )

    @property
    def _session(self) -> str:
        return f"{self._ctx.id}:main"

    def _now(self) -> datetime:
        return self._ctx.clock.now().astimezone(self._ctx.timezone)


def _request(now: datetime, beats: tuple[Beat, ...], checklist: str) -> str:
    """Return what the model decides on."""
    done = (f"- {each.at.astimezone(now.tzinfo):%Y-%m-%d %H:%M}: {each.tasks}" for each in beats)
    earlier = "\n".join(done) or "- none"
    return (
        f"Time: {now:%Y-%m-%d %H:%M} ({now:%A}, {now.tzinfo})\n\n"
        f"Earlier beats that did something:\n{earlier}\n\nThe checklist:\n\n{checklist}"
    )
