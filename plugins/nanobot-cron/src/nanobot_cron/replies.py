"""Answers to ``/cron``, for a chat and for the terminal."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core import NanobotError, OutboundMessage, PathGuard, ToolContext
from nanobot_core.tools import validate_params
from nanobot_cron.jobs import Jobs
from nanobot_cron.report import Reporter, run_as_json
from nanobot_cron.request import NewJob, add_job
from nanobot_cron.tool import change_job, jobs_shown_in
from nanobot_cron.words import OPTIONS, Words, WordsInvalid, parse_words

if TYPE_CHECKING:
    from nanobot_core import CommandCall, JsonObject, JsonValue, PluginContext


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer in words, and the same for programs."""

    text: str
    data: JsonObject


async def answer_cron(ctx: PluginContext, call: CommandCall) -> str:
    """Return the reply to ``/cron``; with ``--json`` an object, with ``error`` if it failed."""
    as_json = "--json" in call.text.split()
    try:
        words = parse_words(call.text)
        as_json = words.as_json
        answer = await _answer(ctx, call, words)
    except (NanobotError, WordsInvalid) as error:
        return json.dumps({"error": str(error)}) if as_json else f"Error: {error}"
    return json.dumps({"text": answer.text, **answer.data}) if words.as_json else answer.text


async def _answer(ctx: PluginContext, call: CommandCall, words: Words) -> _Answer:
    match words.verb:
        case "list":
            return await _list(ctx, call)
        case "add":
            return await _add(ctx, call, words.fields)
        case "history":
            return await _history(ctx, words.job_id)
        case verb:
            return _Answer(await change_job(ctx, verb, words.job_id), {"id": words.job_id})


async def _list(ctx: PluginContext, call: CommandCall) -> _Answer:
    jobs, report = ctx.shared(Jobs), await Reporter.of(ctx, _here(call))
    own = jobs_shown_in(call.turn.requester, await jobs.all())
    system = await jobs.system()

    def render() -> _Answer:
        rows: list[JsonValue] = [*map(report.as_json, own), *map(report.system_as_json, system)]
        return _Answer(report.listed(own, system), {"jobs": rows, "timezone": report.zone.key})

    return await asyncio.to_thread(render)  # ten thousand jobs take a while


async def _add(ctx: PluginContext, call: CommandCall, fields: JsonObject) -> _Answer:
    if findings := validate_params(_schema(), fields):
        raise WordsInvalid("; ".join(findings))
    wanted = NewJob.model_validate(fields)
    said: list[str] = []
    job = await add_job(ctx, wanted, _context(ctx, call, said), OPTIONS)
    report = await Reporter.of(ctx, _here(call))
    return _Answer("\n\n".join((report.added(job), *said)), {"job": report.as_json(job)})


def _here(call: CommandCall) -> tuple[str, str]:
    return call.turn.channel, call.turn.chat_id


@cache
def _schema() -> JsonObject:
    return NewJob.model_json_schema()


async def _history(ctx: PluginContext, job_id: str) -> _Answer:
    runs, report = await ctx.shared(Jobs).history(job_id), await Reporter.of(ctx)
    data: JsonObject = {"id": job_id, "runs": [run_as_json(run) for run in runs]}
    return _Answer(report.history(f"job {job_id}", runs), data)


def _context(ctx: PluginContext, call: CommandCall, said: list[str]) -> ToolContext:
    """Return the context with which events check their options.

    Args:
        said: what they send to the person becomes part of the reply.
    """

    async def send(message: OutboundMessage) -> None:
        said.append(message.content)

    files = PathGuard(
        ctx.workspace,
        restricted=ctx.restrict_to_workspace,
        protected=ctx.protected_paths,
        unlisted=ctx.media.folder,
    )
    return ToolContext(
        session_key=call.turn.session_key,
        turn_id=call.turn.id,
        call_id=call.turn.id,
        channel=call.turn.channel,
        chat_id=call.turn.chat_id,
        sender_id=call.turn.sender_id,
        is_owner=call.is_owner,
        requester=call.turn.requester,
        workspace=ctx.workspace,
        # A path that the owner types needs no further approval.
        files=files.granting([Path("/")]) if call.is_owner else files,
        clock=ctx.clock,
        send=send,
    )
