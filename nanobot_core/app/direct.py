"""DirectClient: the agent of this process, for programs that people work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nanobot_core.app.histories import Histories
from nanobot_core.contracts.client import OfferedTool, ignore_event
from nanobot_core.errors import NanobotError
from nanobot_core.events import ToolOutcome
from nanobot_core.hooks.agent_hook import AgentHook
from nanobot_core.ids import new_id
from nanobot_core.messages import InboundMessage, ToolCall
from nanobot_core.turns.reach import TurnTools
from nanobot_core.turns.request import TurnRequest

if TYPE_CHECKING:
    from nanobot_core.app.models import ConfiguredModels
    from nanobot_core.assignment import Requester
    from nanobot_core.contracts.client import Decide, DirectTurn, EventSink
    from nanobot_core.contracts.plugin import Ticket
    from nanobot_core.events import ApprovalRequested, TurnInfo, TurnOutcome
    from nanobot_core.messages import JsonObject
    from nanobot_core.plugins.table import Generation
    from nanobot_core.turns.pipeline import TurnPipeline

TERMINAL: Final = "cli"
"""Channel of the terminal."""


class DirectClient:
    """An `AgentClient`.

    Args:
        pipeline: returns what turns use; raises `RuntimeError` while the agent is not running.
        models: the models of the configuration.

    Attributes:
        sessions: the sessions.
        turns: turns under way.
    """

    def __init__(self, pipeline: Callable[[], TurnPipeline], models: ConfiguredModels) -> None:
        self._pipeline = pipeline
        self._models = models
        self.turns: int = 0
        self.sessions: Histories = Histories(pipeline)

    async def take_turn(
        self, turn: DirectTurn, on_event: EventSink, decide: Decide | None = None
    ) -> TurnOutcome:
        """Answer a message; see `AgentClient.take_turn`."""
        pipeline = self._pipeline()
        request = _request(turn.requester, turn.text, turn.folder, decide)
        message = replace(
            request.message,
            media=turn.media,
            is_control=pipeline.commands.is_control(turn.text),
        )
        request = replace(request, message=message, model=turn.model, on_event=on_event)
        self.turns += 1
        try:
            outcome = await pipeline.process(request)
        finally:
            self.turns -= 1
        if message.is_control:  # the pipeline answers it without events
            await on_event(outcome)
        return outcome

    async def tools(self, requester: Requester) -> Sequence[OfferedTool]:
        """Return the tools that the requester may call."""
        pipeline, request = self._pipeline(), _request(requester, "", "", None)
        async with pipeline.host.snapshot() as generation:
            tools = _tools(pipeline, request, pipeline.turn_of(request), generation)
            registry = await tools.offered()
        return [
            OfferedTool(
                definition=entry.definition,
                origin=entry.origin,
                read_only=entry.declared.read_only,
            )
            for entry in registry
        ]

    async def call_tool(
        self,
        requester: Requester,
        name: str,
        arguments: JsonObject,
        decide: Decide | None = None,
    ) -> ToolOutcome:
        """Call one tool; see `AgentClient.call_tool`."""
        pipeline, request = self._pipeline(), _request(requester, "", "", decide)
        call, turn = ToolCall(f"call_{new_id()[:24]}", name, arguments), pipeline.turn_of(request)
        async with pipeline.host.snapshot() as generation:
            tools = _tools(pipeline, request, turn, generation)
            hooks, choice = pipeline.hooks_for(request, generation), self._models.known_choice(None)
            spec = await pipeline.run_spec(turn, hooks, tools, choice)
            [result] = await pipeline.setup.runner.run_calls(spec, [call])
        return ToolOutcome(text=result.text, is_error=result.is_error, origin=result.origin)

    async def commands(self) -> Mapping[str, str]:
        """Return every slash command with its summary."""
        return self._pipeline().commands.names()

    async def models(self) -> Sequence[str]:
        """Return the names of presets and of all known models that can be used."""
        return await self._models.names()


class _Decision(AgentHook):
    """Asks the user of the program about a tool call."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    async def choose_approval(self, event: ApprovalRequested) -> Ticket | None:
        """Ask."""
        return await self._decide(event)


def _tools(
    pipeline: TurnPipeline, request: TurnRequest, turn: TurnInfo, generation: Generation
) -> TurnTools:
    hooks = pipeline.hooks_for(request, generation)
    return TurnTools(generation, pipeline.setup.settings.tools, turn, hooks)


def _request(requester: Requester, text: str, folder: str, decide: Decide | None) -> TurnRequest:
    """Return the turn of a program.

    Raises:
        NanobotError: it asks for what its requester may not have.
    """
    is_owner = requester.authority != "guest"
    if folder and not (is_owner and Path(folder).is_absolute()):
        msg = f"the working folder '{folder}' is not an absolute path, or a guest asked for it"
        raise NanobotError(msg)
    return TurnRequest(
        message=InboundMessage(
            channel=requester.channel,
            sender_id=requester.sender_id,
            chat_id=requester.chat_id,
            content=text,
            id=new_id(),
            is_group=requester.is_group,
            session_key_override=requester.session_key,
        ),
        source="cli" if decide or requester.channel == TERMINAL else "api",
        on_event=ignore_event,
        hooks=(_Decision(decide),) if decide else (),
        is_owner=is_owner,
        tools=requester.tools,
        folder=folder,
    )
