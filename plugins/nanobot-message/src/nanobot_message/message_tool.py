"""message: texts and files that the agent sends in addition to its answer."""

from __future__ import annotations

import hashlib
import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from nanobot_core import (
    Button,
    ModelTool,
    OutboundMessage,
    ToolContext,
    ToolDenied,
    ToolInputError,
    ToolResult,
    shorten,
)
from nanobot_message.attachments import Attachments
from nanobot_message.settings import MessageSettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext

_BUTTON_BYTES = 64
"""What a pressed button may send back: Telegram's limit of ``callback_data`` (Bot API)."""

Label: TypeAlias = Annotated[str, Field(min_length=1)]
Row: TypeAlias = Annotated[list[Label], Field(min_length=1, max_length=8)]


class MessageParams(BaseModel):
    """Parameters of `MessageTool`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    content: str = Field(
        default="", max_length=50_000, description="Text in Markdown; with media its caption."
    )
    channel: str | None = Field(
        default=None, max_length=64, description="Channel, such as telegram; this one by default."
    )
    chat_id: str | None = Field(
        default=None, max_length=256, description="Chat on the channel; this one by default."
    )
    media: list[Label] | None = Field(
        default=None,
        description="Files to send: paths, absolute or relative to the workspace. No URLs.",
    )
    buttons: list[Label | Row] | None = Field(
        default=None,
        max_length=20,
        description=(
            "Labels of buttons below the text, or rows of labels. A press comes in as a message "
            "with the label as its text."
        ),
    )


class MessageTool(ModelTool[MessageParams]):
    """Sends a message to the current chat, or to another that the owner allows."""

    name = "message"
    description = (
        "Send a message while you work, or send files: images, documents, audio, video. It "
        "is the only way to give the user a file; read_file only shows it to you. It goes to the "
        "current chat unless channel and chat_id name another. Your final answer reaches the "
        "current chat by itself: answer plainly if there is no file to send, and do not "
        "repeat in the answer what you sent."
    )
    parameters_model = MessageParams
    idempotent = True  # a repeated call has the same idempotency key
    for_guests = True

    def __init__(self, ctx: PluginContext) -> None:
        self._settings = ctx.settings(MessageSettings)
        self._attachments = Attachments(ctx, self._settings)

    async def run(self, context: ToolContext, params: MessageParams) -> ToolResult:
        """Send the message.

        Raises:
            ToolInputError: there is nothing to send, or a file or button cannot be sent.
            ToolDenied: the chat may not be written to, or a file may not be sent.
            ToolFailed: the chat does not exist, nothing can be sent from here, or the disk is full.
        """
        if not params.content.strip() and (params.buttons or not params.media):
            msg = "content is empty; write the text, or name the files to send in media"
            raise ToolInputError(msg)
        channel, chat_id = self._target(context, params)
        buttons = _button_rows(params.buttons or ())
        media = await self._attachments.copy(context, params.media or ())
        await context.send(
            OutboundMessage(
                channel=channel,
                chat_id=chat_id,
                content=params.content,
                media=media,
                buttons=buttons,
                idempotency_key=_idempotency_key(context, params),
            )
        )
        return ToolResult(
            f"Message sent to {channel}:{chat_id}{_count(len(media))}",
            data={"channel": channel, "chat_id": chat_id, "attachments": len(media)},
        )

    def _target(self, context: ToolContext, params: MessageParams) -> tuple[str, str]:
        channel = params.channel or context.channel
        chat_id = params.chat_id or (context.chat_id if channel == context.channel else "")
        if not chat_id:
            msg = f"chat_id is missing; name the chat on channel '{shorten(channel, 64)}'"
            raise ToolInputError(msg)
        # The owner opens other chats for what the owner wants said there, not for guests.
        globs = self._settings.allow_chats if context.is_owner else ()
        if (channel, chat_id) != (context.channel, context.chat_id) and not any(
            _matches(glob, channel, chat_id) for glob in globs
        ):
            allowed = ", ".join(f"'{glob}'" for glob in globs)
            others = f"only to this chat and to {allowed}" if allowed else "to this chat only"
            msg = (
                f"messages may be sent {others}, not to '{shorten(f'{channel}:{chat_id}', 100)}'; "
                "the owner decides in tools.message.allow_chats"
            )
            raise ToolDenied(msg)
        return channel, chat_id


def _matches(glob: str, channel: str, chat_id: str) -> bool:
    # Part by part, so that a channel's star does not reach into the chat.
    channel_glob, _, chat_glob = glob.partition(":")
    return fnmatchcase(channel, channel_glob) and fnmatchcase(chat_id, chat_glob)


def _button_rows(wanted: list[str | list[str]] | tuple[()]) -> tuple[tuple[Button, ...], ...]:
    rows = [[row] if isinstance(row, str) else row for row in wanted]
    return tuple(tuple(_button(label) for label in row) for row in rows)


def _button(label: str) -> Button:
    value = label.strip()
    if not value:
        msg = "buttons has a label without text; name what the button says"
        raise ToolInputError(msg)
    if value.startswith("/"):
        # A press counts as a message of the person who presses, perhaps the owner.
        msg = f"the button '{shorten(value, 100)}' would be a command; choose another label"
        raise ToolInputError(msg)
    if len(value.encode()) > _BUTTON_BYTES:
        msg = (
            f"the button '{shorten(value, 100)}' is longer than {_BUTTON_BYTES} bytes in UTF-8; "
            "shorten it and explain in the content"
        )
        raise ToolInputError(msg)
    return Button(value, value)


def _idempotency_key(context: ToolContext, params: MessageParams) -> str:
    """Return a key that is the same if a crash makes the call run again, and only then.

    A turn that is taken up again has another id, and some models count their calls from 0 in
    every conversation; hence the inbound message and what is sent.
    """
    said = json.dumps(params.model_dump(), sort_keys=True)
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    return f"message:{context.session_key}:{context.message_id or ''}:{context.call_id}:{digest}"


def _count(files: int) -> str:
    if files == 0:
        return ""
    return " with 1 attachment" if files == 1 else f" with {files} attachments"
