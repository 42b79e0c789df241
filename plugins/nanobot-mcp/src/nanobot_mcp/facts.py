"""Maps the calls of an isolated plugin to MCP; ``_meta`` has what MCP does not have fields for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp_types import CallToolResult, ImageContent, TextContent

from nanobot_core import (
    ContentBlock,
    ImageBlock,
    JsonObject,
    PathGuard,
    TextBlock,
    ToolContext,
    ToolDenied,
    ToolError,
    ToolFailed,
    ToolInputError,
    ToolOutput,
    ToolResult,
)

CALL = "io.nanobot/call"
"""Key of `_meta`: the context of a call, and the parts of a result without a field in MCP."""

TIMEOUT = "io.nanobot/timeout_s"
"""Key of `_meta` of a listed tool: the time limit of a call, in seconds."""

_TEXTS = ("session_key", "turn_id", "call_id", "channel", "chat_id", "sender_id", "message_id")
_ERRORS: Mapping[str, type[ToolError]] = {
    kind.__name__: kind for kind in (ToolInputError, ToolFailed, ToolDenied)
}


def from_context(context: ToolContext) -> JsonObject:
    """Return the context of a call as plain data."""
    facts: JsonObject = {name: getattr(context, name) for name in _TEXTS}
    return {**facts, "is_owner": context.is_owner, "workspace": str(context.workspace)}


def to_context(facts: Mapping[str, Any], progress: Callable[[str], Awaitable[None]]) -> ToolContext:
    """Read the result of `from_context`. Files are confined to the workspace."""
    texts = {name: facts[name] for name in _TEXTS}
    workspace = Path(facts["workspace"])
    return ToolContext(
        **texts,
        is_owner=facts["is_owner"] is True,
        workspace=workspace,
        files=PathGuard(workspace),
        progress=progress,
    )


def from_output(output: ToolOutput) -> CallToolResult:
    """Return the output of a tool as an MCP result."""
    result = output if isinstance(output, ToolResult) else ToolResult(_content(output))
    blocks = [TextBlock(result.content)] if isinstance(result.content, str) else result.content
    return CallToolResult(
        content=[_to_protocol(block) for block in blocks],
        structured_content=result.data,
        is_error=result.is_error,
        meta={CALL: {"media": list(result.media)}},
    )


def from_error(error: ToolError) -> CallToolResult:
    """Return an error as an MCP result."""
    kind = next((name for name, kind in _ERRORS.items() if isinstance(error, kind)), "ToolFailed")
    return CallToolResult(
        content=[TextContent(type="text", text=str(error))],
        is_error=True,
        meta={CALL: {"error": kind}},
    )


def to_result(answer: CallToolResult) -> ToolResult:
    """Read the result of `from_output`.

    Raises:
        ToolError: the error that `from_error` received.
    """
    facts = (answer.meta or {}).get(CALL)
    facts = facts if isinstance(facts, dict) else {}
    blocks = [block for part in answer.content if (block := _from_protocol(part)) is not None]
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    kind = facts.get("error")
    if kind is not None:
        raise _ERRORS.get(str(kind), ToolFailed)("\n".join(texts))
    is_text = len(texts) == len(blocks) == 1
    media = facts.get("media")
    data = answer.structured_content
    return ToolResult(
        texts[0] if is_text else tuple(blocks),
        is_error=answer.is_error is True,
        media=tuple(str(path) for path in media) if isinstance(media, list) else (),
        data=data if isinstance(data, dict) else None,
    )


def _content(output: str | Sequence[ContentBlock]) -> str | tuple[ContentBlock, ...]:
    return output if isinstance(output, str) else tuple(output)


def _to_protocol(block: ContentBlock) -> TextContent | ImageContent:
    if isinstance(block, TextBlock):
        return TextContent(type="text", text=block.text)
    return ImageContent(
        type="image",
        mime_type=block.media_type,
        data=block.data,
        meta={CALL: block.path} if block.path else None,
    )


def _from_protocol(part: object) -> ContentBlock | None:
    if isinstance(part, TextContent):
        return TextBlock(part.text)
    if isinstance(part, ImageContent):
        path = (part.meta or {}).get(CALL)
        return ImageBlock(part.mime_type, part.data, path if isinstance(path, str) else None)
    return None
