"""What the tools of this plugin have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict

from nanobot_core import ModelTool
from nanobot_files.files import Files

if TYPE_CHECKING:
    from nanobot_core import PluginContext


class FileParams(BaseModel):
    """Base of the parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)


P = TypeVar("P", bound=FileParams)


class FileTool(ModelTool[P]):
    """Base of the tools: made from the plugin's context, sharing one `Files` per application."""

    def __init__(self, ctx: PluginContext) -> None:
        self._files = ctx.shared(Files)
