"""The tool `exec_session`: background commands after they were started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from nanobot_core import (
    ModelTool,
    Review,
    ToolContext,
    ToolFailed,
    ToolInputError,
    ToolResult,
    shorten,
)
from nanobot_shell.output import render_output
from nanobot_shell.shell import Shell

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_shell.sessions import Session


class SessionParameters(BaseModel):
    """Arguments of `exec_session`."""

    model_config = ConfigDict(extra="forbid")

    action: Annotated[
        Literal["poll", "write", "kill", "list"],
        Field(description="poll: new output and state; write: send text to its input."),
    ]
    id: Annotated[str | None, Field(description="Id that exec gave; not needed for list.")] = None
    text: Annotated[
        str,
        Field(max_length=32_000, description="For write; end it with a line feed for a line."),
    ] = ""


class ExecSessionTool(ModelTool[SessionParameters]):
    """Polls, writes to, kills and lists the background commands of a chat."""

    name = "exec_session"
    description = (
        "Poll, write to, kill or list commands started with exec(background=true). poll returns "
        "only what was printed since the last poll. Kill what is no longer needed."
    )
    parameters_model = SessionParameters
    exclusive = True
    compactable = True

    def __init__(self, ctx: PluginContext) -> None:
        self._shell = ctx.shared(Shell)
        self.max_result_chars = self._shell.settings.max_output_chars

    async def review(self, context: ToolContext, arguments: JsonObject) -> Review:
        """Ask about what is written to a command that runs without a sandbox."""
        params = SessionParameters.model_validate(arguments)
        if params.action != "write" or params.id is None:
            return Review()
        try:
            session = self._shell.sessions.get(context.session_key, params.id)
        except ToolInputError:
            # The call itself says so.
            return Review()
        if session.is_confined:
            return Review()
        question = f"write this to '{shorten(session.command, 80)}', which runs without a sandbox?"
        subject = f"{params.text}\nto {session.command}"
        return Review(decision=self._shell.without_sandbox(context, question, subject))

    async def run(self, context: ToolContext, params: SessionParameters) -> ToolResult:
        """Do what `params` ask of one session, or list them all."""
        sessions = self._shell.sessions
        if params.action == "list":
            lines = [
                f"{each.id} ({each.state}): {shorten(each.command, 80)}"
                for each in sessions.of(context.session_key)
            ]
            return ToolResult("\n".join(lines) or "No background commands")
        if params.id is None:
            msg = f"id is required for {params.action}; exec_session(action='list') shows them"
            raise ToolInputError(msg)
        session = sessions.get(context.session_key, params.id)
        if params.action == "write":
            return _write(session, params.text)
        if params.action == "kill":
            await session.process.end()
        return self._report(session)

    def _report(self, session: Session) -> ToolResult:
        state = session.state
        stdout, stderr = session.process.take_output()
        ending = f"{session.id} is {state}" if state == "running" else f"{session.id} {state}"
        return ToolResult(
            render_output(stdout, stderr, ending),
            data={"id": session.id, "exit_code": session.process.exit_code},
        )


def _write(session: Session, text: str) -> ToolResult:
    data = text.encode("utf-8", "replace")
    try:
        written = session.process.write(data)
    except OSError as error:
        msg = f"{session.id} no longer accepts input ({session.state})"
        raise ToolFailed(msg) from error
    if written < len(data):
        msg = f"{session.id} took {written} of {len(data)} bytes; poll, then send the rest"
        raise ToolFailed(msg)
    return ToolResult(f"Sent {written} bytes to {session.id}")
