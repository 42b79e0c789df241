"""What the tools of this plugin have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict

from nanobot_core import JsonObject, ModelTool, Review, ToolContext
from nanobot_files.files import Access, Files

if TYPE_CHECKING:
    from nanobot_core import PluginContext


class FileParams(BaseModel):
    """Base of the parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)


P = TypeVar("P", bound=FileParams)


class FileTool(ModelTool[P]):
    """Base of the tools: made from the plugin's context, sharing one `Files` per application."""

    for_guests = True

    def __init__(self, ctx: PluginContext) -> None:
        self._files = ctx.shared(Files)

    async def review(self, context: ToolContext, arguments: JsonObject) -> Review:
        """Ask the owner about paths outside the workspace."""
        return await self._files.review(context, *self.targets(arguments))

    def targets(self, arguments: JsonObject) -> list[tuple[Access, str]]:
        """Return what a call does to which path, as the model wrote it."""
        return [("read" if self.read_only else "write", str(arguments.get("path") or "."))]
