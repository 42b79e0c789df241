"""The tool `exec`: one shell command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from nanobot_core import Deny, ModelTool, Review, ToolContext, ToolDenied, ToolError, ToolResult
from nanobot_shell.output import render_output
from nanobot_shell.shell import Shell

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext

_MAX_TIMEOUT_S = 600
_ENDING_GRACE_S = 15


class ExecParameters(BaseModel):
    """Arguments of `exec`."""

    model_config = ConfigDict(extra="forbid")

    command: Annotated[str, Field(min_length=1, description="Shell command line.")]
    working_dir: Annotated[
        str | None, Field(description="Folder to run in; the workspace when left out.")
    ] = None
    timeout: Annotated[
        int | None,
        Field(ge=1, le=_MAX_TIMEOUT_S, description="Seconds until it is ended; 60 by default."),
    ] = None
    background: Annotated[
        bool, Field(description="Return an id at once; the command continues (see exec_session).")
    ] = False


class ExecTool(ModelTool[ExecParameters]):
    """Runs a command, in a sandbox or when the owner approves."""

    name = "exec"
    description = (
        "Run a shell command in the workspace and return stdout, stderr and the exit code. "
        "Where you have read_file, edit_file, grep and glob, prefer them to cat, sed, grep and "
        "find. There is no terminal and no input: use -y and other non-interactive flags. "
        "Everything the command started ends with it; use background=true for servers and other "
        "long work. Long output is cut in the middle and kept in a file that the result names."
    )
    parameters_model = ExecParameters
    exclusive = True
    compactable = True
    timeout_s = _MAX_TIMEOUT_S + _ENDING_GRACE_S

    def __init__(self, ctx: PluginContext) -> None:
        self._shell = ctx.shared(Shell)
        self.max_result_chars = self._shell.settings.max_output_chars

    async def review(self, context: ToolContext, arguments: JsonObject) -> Review:
        """Refuse what the guard refuses, and ask about what would run without a sandbox."""
        params = ExecParameters.model_validate(arguments)
        shell = self._shell
        reason, reading = await shell.judge(context, params.command, params.working_dir)
        values = {} if reading is None else {"command": reading.values}
        probe = await shell.probe()
        if reason:
            return Review(decision=Deny(reason), values=values)
        if probe.sandbox is not None:
            return Review(values=values)
        try:
            folder = await asyncio.to_thread(shell.folder, context, params.working_dir)
        except ToolError as error:
            return Review(decision=Deny(str(error)), values=values)
        question = f"run this command without a sandbox ({probe.reason})?"
        subject = f"{params.command}\nin {folder}"
        return Review(decision=shell.without_sandbox(context, question, subject), values=values)

    async def run(self, context: ToolContext, params: ExecParameters) -> ToolResult:
        """Run the command and report; a non-zero exit code is a result, not an error."""
        # Again, because a caller may skip the review.
        reason, _ = await self._shell.judge(context, params.command, params.working_dir)
        if reason:
            raise ToolDenied(reason)
        folder = await asyncio.to_thread(self._shell.folder, context, params.working_dir)
        if params.background:
            return await self._run_in_background(context, params.command, folder)
        settings = self._shell.settings
        limit_s = params.timeout or settings.timeout_s
        process = await self._shell.start(context, params.command, folder)
        await process.finish(limit_s)
        if process.timed_out:
            ending = (
                f"The command was ended after {limit_s} seconds, with all it had started; give a "
                "longer timeout (at most 600) or use background=true"
            )
            text = render_output(process.stdout, process.stderr, ending)
            return ToolResult(text, is_error=True, data={"timed_out": True})
        code = process.exit_code
        text = render_output(process.stdout, process.stderr, f"Exit code: {code}")
        return ToolResult(text, data={"exit_code": code})

    async def _run_in_background(
        self, context: ToolContext, command: str, folder: Path
    ) -> ToolResult:
        sessions = self._shell.sessions
        async with sessions.starting:
            sessions.require_room()
            process = await self._shell.start(context, command, folder, with_input=True)
            is_confined = (await self._shell.probe()).sandbox is not None
            session = sessions.add(context.session_key, command, process, is_confined=is_confined)
        return ToolResult(
            f"Started in the background as {session.id}; use exec_session to poll, write or kill",
            data={"id": session.id},
        )
