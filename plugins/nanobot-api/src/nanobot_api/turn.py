"""How a request is answered: by the agent, or by a model alone."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nanobot_api.answer import Answer, AnswerText, MadeCall, Tokens
from nanobot_api.error import INTERNAL, ApiError, failed, failure_of, quota_used_up, unavailable
from nanobot_api.keys import AGENT, PLAIN
from nanobot_api.place import Place, Places
from nanobot_core import (
    AgentTask,
    DirectTurn,
    ImageBlock,
    LimitError,
    Message,
    MessageSent,
    NanobotError,
    ProviderError,
    Requester,
)

if TYPE_CHECKING:
    from nanobot_api.answer import Finish
    from nanobot_api.ask import Ask
    from nanobot_api.keys import ApiKey
    from nanobot_api.run import Run
    from nanobot_core import PluginContext, RunEvent, StopReason, TaskOutcome, TurnOutcome

INSTRUCTIONS: Final = (
    "[Instructions of the program that passes on this message. They come below your own "
    "instructions and do not replace them.]\n{system}\n[End of the program's instructions]\n\n"
)
_FINISH: Final[dict[StopReason, Finish]] = {
    "iteration_limit": "length",
    "token_limit": "length",
    "budget": "length",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request that may be answered.

    Attributes:
        ask: what is asked.
        key: who asks.
        session: name of the session, or empty.
    """

    ask: Ask
    key: ApiKey
    session: str = ""


async def answer(ctx: PluginContext, job: Job, run: Run) -> Answer:
    """Answer a request; the pieces go to `run` as they come.

    Raises:
        ApiError: it fails.

    Cancellation:
        The turn is stopped, and what it was not to leave behind is deleted.
    """
    bound = ctx.logger
    try:
        if job.ask.model == AGENT:
            return await _ask_agent(ctx, job, run)
        return await _ask_model(ctx, job, run)
    except ApiError:
        raise
    except (ProviderError, LimitError) as error:
        raise ApiError(failure_of(error, job.ask.model)) from error
    except NanobotError as error:
        failure = failure_of(error, job.ask.model)
        if failure.status == 500:
            # Its text is for the owner: it may name files, plugins and settings.
            bound.error("request {} failed: {}", run.id, error)
            failure = failed(f"{INTERNAL} (request {run.id})")
        raise ApiError(failure) from error
    except RuntimeError as error:
        bound.warning("request {} failed: {}", run.id, error)
        message = "the agent does not work at the moment; try again later"
        raise unavailable(message) from error


async def _ask_agent(ctx: PluginContext, job: Job, run: Run) -> Answer:
    """Take a turn."""
    if ctx.gateway is None:
        raise unavailable("the API works in a gateway only")
    *earlier, last = job.ask.messages
    text, is_kept = AnswerText(), False
    sent: list[str] = []

    async def watch(event: RunEvent) -> None:
        if isinstance(event, MessageSent):
            sent.append(event.message.content)
        if delta := text.take(event):
            run.emit(delta)

    client, places = ctx.gateway.client, Places(ctx, job.key.name)
    async with places.open(job, run.id, earlier) as place:
        commands = await client.commands()
        files = await _save_images(ctx, last)
        try:
            turn = DirectTurn(
                requester=_requester(ctx, job, place),
                text=_with_instructions(job.ask.system, last.text, commands),
                media=tuple(map(str, files)),
            )
            outcome = await client.take_turn(turn, watch)
            _demand_answer(outcome)
            is_kept = not place.is_temporary
        finally:
            if not is_kept:
                _remove(files)
        await places.keep(job, run.id, place)
    reply = outcome.reply or ""
    if delta := text.end(reply):
        run.emit(delta)
    return Answer(
        text="\n\n".join(each for each in (*sent, reply) if each),
        finish=_FINISH.get(outcome.stop_reason, "stop"),
        tokens=Tokens.of(outcome.usage),
    )


async def _ask_model(ctx: PluginContext, job: Job, run: Run) -> Answer:
    """Ask a model, without the agent's instructions, tools and memory."""
    ask, text = job.ask, AnswerText()
    system = [Message(role="system", content=ask.system)] if ask.system else []

    async def watch(event: RunEvent) -> None:
        if delta := text.take(event):
            run.emit(delta)

    task = AgentTask(
        purpose=job.key.name,
        messages=(*system, *ask.messages),
        model=None if ask.model == PLAIN else ask.model,
        max_tokens=ask.max_tokens,
        continues=ask.max_tokens is None,
        caller_tools=ask.tools,
    )
    outcome: TaskOutcome = await ctx.agent.run(task, watch if ask.stream else None)
    if outcome.stop_reason == "failed":
        raise ApiError(failed(outcome.content))
    if outcome.stop_reason == "budget" and not outcome.usage.total_tokens:
        raise quota_used_up(outcome.content)
    if ask.stream and (delta := text.end(outcome.content)):
        run.emit(delta)
    calls = tuple(
        MadeCall(
            id=call.id or f"call_{run.id[:16]}_{number}",
            name=call.name,
            arguments=json.dumps(call.arguments) if call.unparsed is None else call.unparsed,
        )
        for number, call in enumerate(outcome.calls)
    )
    finish = _FINISH.get(outcome.stop_reason, "stop")
    return Answer(
        text=outcome.content,
        finish="tool_calls" if calls else finish,
        calls=calls,
        tokens=Tokens.of(outcome.usage),
    )


def _requester(ctx: PluginContext, job: Job, place: Place) -> Requester:
    return Requester(
        channel=ctx.id,
        chat_id=place.name,
        sender_id=job.key.name,
        session_key=place.session,
        authority=job.key.authority,
        tools=(job.key.tools,),
    )


def _with_instructions(system: str, text: str, commands: Mapping[str, str]) -> str:
    """Return a message below the instructions of the program; a slash command stays one."""
    word = text.partition(" ")[0].removeprefix("/")
    is_command = text.startswith("/") and word in commands
    if not system or is_command:
        return text
    return INSTRUCTIONS.format(system=system) + text


def _demand_answer(outcome: TurnOutcome) -> None:
    """Raise for a turn without an answer.

    Raises:
        ApiError: the turn failed, was stopped, or had no budget.
    """
    if outcome.stop_reason == "failed":
        raise ApiError(failed(outcome.error or INTERNAL))
    if outcome.stop_reason == "cancelled":
        raise ApiError(failed("the turn was stopped", code="request_cancelled"))
    if outcome.stop_reason == "budget" and not outcome.usage.total_tokens:
        raise quota_used_up(outcome.reply or "the budget is used up")


async def _save_images(ctx: PluginContext, message: Message) -> list[Path]:
    """Store the pictures of a message as files."""
    images = [block for block in message.content if isinstance(block, ImageBlock)]
    files: list[Path] = []
    for number, image in enumerate(images, 1):
        name = f"image-{number}.{image.media_type.removeprefix('image/')}"
        files.append(await ctx.media.save(name, _bytes_of(image)))
    return files


async def _bytes_of(image: ImageBlock) -> AsyncIterator[bytes]:
    yield base64.b64decode(image.data)


def _remove(files: list[Path]) -> None:
    # The media store gives each file a folder of its own.
    for file in files:
        shutil.rmtree(file.parent, ignore_errors=True)
