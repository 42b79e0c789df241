"""The loop: model call, tool calls, again, until there is an answer or a limit."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.agent.approval import ApprovalPolicy, Approver
from nanobot_core.agent.cool_down import CoolDowns
from nanobot_core.agent.model_call import ModelAnswer, ModelCaller
from nanobot_core.agent.run import (
    AgentRunResult,
    AgentRunSpec,
    Compaction,
    ModelSource,
    unshaped,
)
from nanobot_core.agent.shortening import (
    COMPACT_AT,
    compact,
    input_budget,
    microcompact,
    render_transcript,
)
from nanobot_core.agent.tokens import RequestMeter, TokenEstimator
from nanobot_core.agent.tool_runner import ToolRunner
from nanobot_core.clock import Clock
from nanobot_core.errors import ContextTooLong, LimitError, PluginError, ProviderError
from nanobot_core.events import (
    ContentReady,
    IterationFinished,
    IterationStarted,
    ProgressMade,
    StopReason,
    StreamRestarted,
    ToolDefinition,
)
from nanobot_core.messages import CHANGED_BY, JsonObject, Message, ToolCall
from nanobot_core.record import dataclass
from nanobot_core.text import truncate_middle

if TYPE_CHECKING:
    from nanobot_core.agent.structured import AnswerForm, ObjectAnswer

NO_ANSWER = "The model gave no answer, twice. Please rephrase the question or try another model."
CONTINUE = "Continue exactly where you stopped. Do not repeat anything."
CUT_CALL = (
    "Your tool call was cut off because it was too long, and it was not run. Do the same in "
    "smaller steps."
)
CUT_TOO_OFTEN = "I stopped because my tool calls were too long and were cut off again and again."
SUMMARISE_AT_LIMIT = (
    "You have reached the limit of tool calls for this task. Say in a few sentences what was "
    "done and what is left."
)
SUMMARISE_WHEN_STUCK = (
    "You keep making the same call with the same result, so no more tools are run. Say in a few "
    "sentences what was done and what is left."
)
ANSWER_NOW = "No more tools are run for this task. Give the final answer now, from what you know."
STUCK = "I stopped because the same tool call gave the same result again and again."
MECHANICAL_SUMMARY_CHARS = 4_000
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_TOOL_NAME = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True)
class _Ending:
    """The end of a run: its final text, the reason, the answer that contains it, the object."""

    content: str
    reason: StopReason
    answer: ModelAnswer | None = None
    found: ObjectAnswer | None = None


class AgentRunner:
    """Runs the agent. It keeps no state of a run, so that runs can be concurrent.

    Args:
        models: finds the provider of a model.
        clock: source of time.
        policy: the owner's decisions on tool calls.
        cool_downs: shared with former runners; by default none has failed.

    Attributes:
        estimator: counts tokens; shared by all runs, because it learns.
    """

    def __init__(
        self,
        models: ModelSource,
        *,
        clock: Clock,
        policy: ApprovalPolicy,
        cool_downs: CoolDowns | None = None,
    ) -> None:
        self._models, self._clock, self._policy = models, clock, policy
        self._cool_downs = cool_downs or CoolDowns(clock)
        self.estimator: TokenEstimator = TokenEstimator()

    async def run(self, spec: AgentRunSpec) -> AgentRunResult:
        """Work until there is an answer or a limit.

        Raises:
            ProviderError: no model answered.
            PluginError: the provider's plugin failed.
            NoProvider: no provider serves the model.
            SessionError: a result could not be stored.

        Cancellation:
            Running tools are cancelled and awaited. ``spec.record`` has received all that is known
            of the run; report calls without a result as interrupted.
        """
        tools = self._tool_runner(spec)
        caller = ModelCaller(spec, self._models, self._clock, self._cool_downs)
        return await _Run(spec, caller, self._clock, self.estimator, tools).go()

    async def run_calls(self, spec: AgentRunSpec, calls: Sequence[ToolCall]) -> list[Message]:
        """Run calls of an interrupted turn again, and return their results in the same order."""
        return await self._tool_runner(spec).run_batch(calls, 0)

    def _tool_runner(self, spec: AgentRunSpec) -> ToolRunner:
        return ToolRunner(spec, self._clock, Approver(spec.turn, spec.hooks, self._policy))


class _Run:
    """The state of one run."""

    def __init__(
        self,
        spec: AgentRunSpec,
        caller: ModelCaller,
        clock: Clock,
        estimator: TokenEstimator,
        tools: ToolRunner,
    ) -> None:
        self.spec = spec
        self.clock = clock
        self.estimator = estimator
        self.caller = caller
        self.tools = tools
        self.request = list(spec.messages)
        self.call_ids = {call.id for message in self.request for call in message.tool_calls}
        self.meter = RequestMeter()
        self.form = _form_of(spec)
        self.budget = input_budget(spec.context_window_tokens, spec.max_tokens)
        self.aside: list[Message] = []
        """Messages after the request that complete one answer; they are not stored."""
        self.pieces: list[str] = []
        self.continuations = 0
        self.asked_again = False
        self.added: list[Message] = []
        self.used: dict[str, None] = {}
        self.iteration_s: list[float] = []
        self.compaction: Compaction | None = None
        self.model = ""

    @property
    def iteration(self) -> int:
        """Number of the iteration under way, from 1."""
        return len(self.iteration_s) + 1

    async def go(self) -> AgentRunResult:
        """Iterate."""
        ending: _Ending | None = None
        if self.spec.pending:
            await self._run_calls(self.spec.pending, 0)
            self.request = _in_call_order(self.request)
        if self.spec.turn.assignment is not None:
            await self._listen()  # results that wait for one session have one answer
        while ending is None and len(self.iteration_s) < self.spec.max_iterations:
            started = time.perf_counter()
            try:
                ending = await self._step()
            except LimitError as error:
                said = "".join(self.pieces)
                ending = _Ending(f"{said}\n\n{error}".strip(), "budget")
            else:
                self.iteration_s.append(time.perf_counter() - started)
            if self.tools.is_stuck:
                ending = await self._sum_up(SUMMARISE_WHEN_STUCK, STUCK, "repetition")
        if ending is None:
            limit = f"I stopped after {self.spec.max_iterations} steps without finishing the task."
            ending = await self._sum_up(SUMMARISE_AT_LIMIT, limit, "iteration_limit")
        return await self._finish(ending)

    async def _step(self) -> _Ending | None:
        """Make one model call and run the tools that it asks for; ``None`` means continue."""
        tools = self.spec.tools
        answer = await self._iterate(
            self.form.offered(tools)
            if self.form
            else (*tools.get_definitions(), *self.spec.caller_tools)
        )
        if self.form:
            work = self.form.work(answer.response)
            if work is None:
                return await self._take_object(answer, self.form)
            answer = replace(answer, response=work)
        response = answer.response
        is_cut = response.finish_reason == "length"
        if response.tool_calls and not is_cut:
            if self.spec.caller_tools:
                return _Ending("".join([*self.pieces, response.content or ""]), "completed", answer)
            await self._run_tools(answer)
            await self._listen()
            return None
        text = response.content or ""
        if (
            is_cut
            and (text or response.tool_calls)
            and self.continuations < self.spec.max_continuations
        ):
            self._ask_for_the_rest(answer)
            return None
        self.pieces.append(text)
        whole = "".join(self.pieces)
        if response.tool_calls:
            return _Ending(f"{whole}\n\n{CUT_TOO_OFTEN}".strip(), "failed")
        if whole.strip():
            return _Ending(whole, "token_limit" if is_cut else "completed", answer)
        if self.asked_again:
            return _Ending(NO_ANSWER, "failed")
        self.asked_again = True
        return None

    async def _take_object(self, answer: ModelAnswer, form: AnswerForm) -> _Ending | None:
        """End with the object in the answer; if it is not valid, let the model correct it once."""
        found = form.read(answer.response)
        if found.value is not None:
            return _Ending(found.text, "completed", answer, found)
        if form.is_last:
            return _Ending(found.text or NO_ANSWER, "failed", answer, found)
        form.is_last = True
        reason = f"the answer is not valid: {'; '.join(found.findings)}"
        await self.spec.on_event(StreamRestarted(reason=reason))
        calls = _normalised(answer.response.tool_calls, self.call_ids, self.spec.turn.id)
        self.aside += form.correction(answer.response, calls, found.findings)
        return None

    async def _iterate(self, tools: Sequence[ToolDefinition]) -> ModelAnswer:
        """Make one model call on a request that fits."""
        hooks, turn, iteration = self.spec.hooks, self.spec.turn, self.iteration
        shape = self.form.shape if self.form else unshaped
        sent = await self._fitting(tools)
        if hooks.before_iteration:
            await hooks.before_iteration(
                IterationStarted(
                    turn=turn,
                    iteration=iteration,
                    model=self.model or self.spec.model or "",
                    messages=len(self.request),
                )
            )
        try:
            answer = await self.caller.call(sent, tools, iteration, shape=shape)
        except ContextTooLong:
            if not await self._compact(tools):
                raise
            sent = self._outgoing()
            answer = await self.caller.call(sent, tools, iteration, shape=shape)
        response = answer.response
        self.model = answer.model.name
        tokens = response.usage.prompt_tokens - self.estimator.count_tools(tools)
        self.estimator.learn(self.meter.measure(sent), tokens)
        if hooks.after_iteration:
            await hooks.after_iteration(
                IterationFinished(
                    turn=turn,
                    iteration=iteration,
                    model=answer.model.name,
                    provider=answer.model.provider_name,
                    usage=response.usage,
                    finish_reason=response.finish_reason,
                    tool_calls=response.tool_calls,
                    duration_s=answer.duration_s,
                    first_token_s=answer.first_token_s,
                )
            )
        return answer

    async def _run_tools(self, answer: ModelAnswer) -> None:
        response = answer.response
        calls = _normalised(response.tool_calls, self.call_ids, self.spec.turn.id)
        content = "".join([*self.pieces, response.content or ""])
        message = Message(
            role="assistant",
            content=content,
            tool_calls=calls,
            reasoning=response.reasoning,
            provider_blocks=response.provider_blocks,
            timestamp=self.clock.now(),
        )
        self.aside.clear()
        self.pieces.clear()
        self.continuations, self.asked_again = 0, False
        self._add(message)
        await self.spec.record([message], calls)
        if content.strip():
            await self.spec.on_event(ProgressMade(text=content.strip()))
        await self._run_calls(calls, self.iteration)

    async def _run_calls(self, calls: Sequence[ToolCall], iteration: int) -> None:
        self.used.update(dict.fromkeys(call.name for call in calls))
        for result in await self.tools.run_batch(calls, iteration):
            self._add(result)

    async def _listen(self) -> None:
        """Take over new tools and the messages that the user has sent in the meantime."""
        if (newer := await self.spec.newer_tools()) is not None:
            self.spec = self.tools.spec = replace(self.spec, tools=newer)
        for message in await self.spec.more():
            self._add(message)
            await self.spec.record([message], ())

    def _ask_for_the_rest(self, answer: ModelAnswer) -> None:
        """Ask the model to continue a cut answer, or to repeat cut calls in smaller parts."""
        self.continuations += 1
        text = answer.response.content or ""
        if text:
            self.aside.append(Message(role="assistant", content=text))
        if answer.response.tool_calls:
            self.aside.append(Message(role="user", content=CUT_CALL))
        else:
            self.pieces.append(text)
            self.aside.append(Message(role="user", content=CONTINUE))

    async def _sum_up(self, instruction: str, fallback: str, reason: StopReason) -> _Ending:
        """Ask for a summary of the work, without tools; if that fails, `fallback` is the answer.

        A run that has to end with an object asks for it instead.
        """
        tools: tuple[ToolDefinition, ...] = ()
        if self.form:
            self.form.is_last, instruction = True, ANSWER_NOW
            tools = self.form.offered(self.spec.tools)
        self.aside.append(Message(role="user", content=instruction))
        try:
            answer = await self._iterate(tools)
        except (ProviderError, PluginError, LimitError):
            return _Ending(fallback, reason)
        if self.form:
            found = self.form.read(answer.response)
            return _Ending(found.text or fallback, reason, answer, found)
        return _Ending((answer.response.content or "").strip() or fallback, reason, answer)

    async def _finish(self, ending: _Ending) -> AgentRunResult:
        hooks, content, answer = self.spec.hooks, ending.content, ending.answer
        found = ending.found
        extra: JsonObject = {}
        if hooks.finalize_content:
            await hooks.on_stream.settle()
            await hooks.on_stream_end.settle()
            content, changed = await hooks.finalize_content.traced(
                ContentReady(turn=self.spec.turn, content=content)
            )
            extra = {CHANGED_BY: changed} if changed else {}
            if self.form and found and found.value and content != ending.content:
                found = self.form.read_text(content)
        message = Message(
            role="assistant",
            content=content,
            reasoning=answer.response.reasoning if answer else None,
            # Those of calls may refer to the calls, which the final answer does not contain.
            provider_blocks=()
            if answer is None or answer.response.tool_calls
            else answer.response.provider_blocks,
            timestamp=self.clock.now(),
            extra=extra,
        )
        self.added.append(message)
        return AgentRunResult(
            content=message.text,
            messages=tuple(self.added),
            stop_reason="failed" if found and found.findings else ending.reason,
            usage=self.caller.usage,
            tools_used=tuple(self.used),
            iterations=len(self.iteration_s),
            model=self.model,
            compaction=self.compaction,
            iteration_s=tuple(self.iteration_s),
            output=found.value if found else None,
            findings=found.findings if found else (),
            calls=self._callers_calls(answer),
        )

    def _callers_calls(self, answer: ModelAnswer | None) -> tuple[ToolCall, ...]:
        """Return the calls with which the run ended, because the caller runs them."""
        if answer is None or not self.spec.caller_tools:
            return ()
        return _normalised(answer.response.tool_calls, self.call_ids, self.spec.turn.id)

    def _add(self, message: Message) -> None:
        self.request.append(message)
        self.added.append(message)

    def _outgoing(self) -> list[Message]:
        # Omitted results stay omitted: each change of the beginning voids the prompt cache.
        self.request = microcompact(self.request, self.spec.tools.compactable_names())
        return [*self.request, *self.aside]

    async def _fitting(self, tools: Sequence[ToolDefinition]) -> list[Message]:
        """Return the messages to send, after a summary of the oldest if they take too much."""
        sent = self._outgoing()
        if self._is_too_long(sent, tools):
            await self.estimator.calibrate(sent)
            if self._is_too_long(sent, tools) and await self._compact(tools):
                return self._outgoing()
        return sent

    def _is_too_long(self, sent: Sequence[Message], tools: Sequence[ToolDefinition]) -> bool:
        tokens = self.estimator.estimate(self.meter.measure(sent))
        return tokens + self.estimator.count_tools(tools) > self.budget * COMPACT_AT

    async def _compact(self, tools: Sequence[ToolDefinition]) -> bool:
        """Summarise the oldest part of the request; False if nothing can be left out."""
        budget = max(self.budget - self.estimator.count_tools(tools), 0)
        shorter, done = await compact(self.request, budget, self.estimator, self._summarise)
        if done is None:
            return False
        earlier = self.compaction.messages - 1 if self.compaction else 0
        self.compaction = replace(done, messages=done.messages + earlier)
        from loguru import logger

        bound = logger.bind(turn=self.spec.turn.id, session=self.spec.turn.session_key)
        bound.info("summarised {} messages", len(self.request) - len(shorter) + 1)
        self.request = shorter
        return True

    async def _summarise(self, messages: Sequence[Message]) -> str:
        """Return a summary by the model, or a shortened transcript if the model gives none."""
        chars = self.estimator.chars_for(self.budget // 2, messages)
        transcript = render_transcript(messages, chars)
        question = Message(role="user", content=f"{transcript}\n\n{self.spec.summary_instruction}")
        try:
            answer = await self.caller.call([question], (), self.iteration, is_hidden=True)
        except (ProviderError, PluginError):
            return truncate_middle(transcript, MECHANICAL_SUMMARY_CHARS)
        return answer.response.content or truncate_middle(transcript, MECHANICAL_SUMMARY_CHARS)


def _form_of(spec: AgentRunSpec) -> AnswerForm | None:
    if spec.output is None:
        return None
    from nanobot_core.agent.structured import AnswerForm  # most runs do without it

    return AnswerForm(spec.output)


def _in_call_order(request: Sequence[Message]) -> list[Message]:
    """Return `request` with the results of its last calls in the order of the calls."""
    place = max(index for index, message in enumerate(request) if message.tool_calls)
    order = {call.id: number for number, call in enumerate(request[place].tool_calls)}
    results = sorted(
        request[place + 1 :], key=lambda message: order.get(message.tool_call_id or "", len(order))
    )
    return [*request[: place + 1], *results]


def _normalised(calls: Sequence[ToolCall], taken: set[str], turn_id: str) -> tuple[ToolCall, ...]:
    """Return `calls` with names and ids that every provider accepts; adds the ids to `taken`.

    Some services accept ids that another service would refuse later in the same session.
    """
    result: list[ToolCall] = []
    for call in calls:
        call_id = call.id
        if not _CALL_ID.fullmatch(call_id) or call_id in taken:
            call_id = f"call_{turn_id[:8]}_{len(taken)}"
            while call_id in taken:
                call_id += "x"
        taken.add(call_id)
        name = _NO_TOOL_NAME.sub("_", call.name)[:64] or "unknown"
        result.append(replace(call, id=call_id, name=name))
    return tuple(result)
