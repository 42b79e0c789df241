"""Settings of the MCP server."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import PositiveInt

from nanobot_core import PluginSettings

NOTHING_ALLOWED: Final = (
    "no tool is served; list names or patterns under tools.serve_mcp.allow, such as "
    "nanobot config set tools.serve_mcp.allow '[read_file, list_dir]'"
)


class McpServerSettings(PluginSettings):
    """Section ``tools.serve_mcp``.

    Attributes:
        allow: names or patterns of the tools that are served, such as ``read_file`` or ``web_*``.
        rights: whose rights calls have; a guest's tools are those of ``tools.guests``.
        http: whether the gateway serves them at ``/mcp``, too.
        max_result_chars: longest text of a result; a longer one is shortened in the middle.
    """

    allow: tuple[str, ...] = ()
    rights: Literal["owner", "guest"] = "owner"
    http: bool = False
    max_result_chars: PositiveInt = 100_000
