"""The connection to Slack as nanobot's chat platform."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from nanobot_core import JsonObject, JsonValue, shorten
from nanobot_core.chat import (
    Attachment,
    CallFailed,
    Cause,
    ChatPlatform,
    FileKind,
    Piece,
    Recent,
    SendLimits,
)
from nanobot_slack import wire
from nanobot_slack.blocks import build_content, build_edit, measure
from nanobot_slack.client import SlackClient
from nanobot_slack.connection import SocketMode
from nanobot_slack.drafts import Budget, Streams
from nanobot_slack.failure import APP_TOKEN, BOT_TOKEN, bad_token, refused_call
from nanobot_slack.feed import Feed
from nanobot_slack.history import History, build_watermarks
from nanobot_slack.mapping import Account, Reader, Rules, is_group
from nanobot_slack.reactions import WorkSigns
from nanobot_slack.settings import SlackSettings, Timing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nanobot_core import PluginContext
    from nanobot_core.chat import Intake

MESSAGE_CHARS = 12_000
_FILE_BYTES = 100 * 1024 * 1024
_KINDS: frozenset[FileKind] = frozenset({"image", "animation", "voice", "audio", "video", "file"})
_TARGET = re.compile(r"(?P<channel>[CDGUW][A-Z0-9]{2,39})(?::(?P<thread>[0-9]{1,12}\.[0-9]{1,9}))?")
_STAMP = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")
_SCOPES: Mapping[str, str] = {
    "chat:write": "answers cannot be sent",
    "im:history": "direct messages do not arrive",
    "channels:history": "messages of public channels that do not mention the app do not arrive",
    "files:read": "files cannot be received",
    "files:write": "files cannot be sent",
    "reactions:write": "the reaction while working cannot be shown",
}
"""Scope to what fails without it."""


class SlackPlatform(ChatPlatform):
    """A Slack app in one workspace.

    Raises:
        CallFailed: a token is missing or the wrong one.
    """

    completes_drafts = True
    limits = SendLimits(
        text=MESSAGE_CHARS,
        measure=measure,
        file_bytes=_FILE_BYTES,
        album_files=10,
        album_bytes=10 * _FILE_BYTES,
        albums=(_KINDS,),
    )

    def __init__(
        self,
        ctx: PluginContext,
        settings: SlackSettings,
        timing: Timing,
        *,
        typing_silence_s: float,
    ) -> None:
        _check_token(settings.bot_token.get_secret_value(), BOT_TOKEN, "xoxb-")
        _check_token(settings.app_token.get_secret_value(), APP_TOKEN, "xapp-")
        self._ctx = ctx
        self._log = ctx.logger
        self._settings = settings
        self._timing = timing
        self._client = SlackClient(settings, timing)
        self._signs = WorkSigns(ctx, self._client, settings, typing_silence_s)
        self._marks = ctx.shared(build_watermarks)
        self._drafts: Recent[str, str] = Recent()
        self._budget = Budget(ctx.clock)
        self._streams = Streams(self._client)
        self._account: Account | None = None

    async def sign_in(self) -> str:
        """Check the token of the bot with one call; the app's is checked by `receive`."""
        return (await self._identify()).name

    async def receive(self, intake: Intake) -> None:
        """Receive over Socket Mode, beginning with what was missed."""
        account = self._account or await self._identify()
        reader = Reader(account, self._rules())
        self._marks.forget()
        history = History(self._ctx, self._client, self._marks, self._timing.catch_up_s)
        feed = Feed(intake, reader, self._marks, self._signs, self._ctx, self._release_buttons)
        await SocketMode(
            self._client,
            self._timing,
            take=feed.take,
            alive=intake.alive,
            log=self._log,
            catch_up=lambda: history.catch_up(feed.take_missed),
        ).run()

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a piece into a conversation or thread; Slack has no way to send once by key."""
        channel, thread_ts = _parse_target(chat_id)
        asked = _stamp_of(reply_to)
        if piece.is_draft:
            sent = await self._begin_draft(chat_id, channel, thread_ts, piece)
            self._drafts.put(sent, asked)
            return sent
        if piece.files:
            sent = await self._send_files(channel, thread_ts, piece)
        else:
            sent = await self._post(channel, thread_ts, piece)
        if asked:
            self._signs.answered(chat_id, asked)
        return sent

    async def edit(self, chat_id: str, message_id: str, piece: Piece) -> None:
        """Replace a message. Drafts leave room in the limit of edits for answers."""
        channel, _ = _parse_target(chat_id)
        if piece.is_draft:
            if await self._streams.grow(channel, message_id, piece.text):
                return
            self._budget.spend()
        else:
            await self._streams.stop(channel, message_id)
        await self._client.call(
            "chat.update", {"channel": channel, "ts": message_id, **build_edit(piece)}
        )
        if not piece.is_draft and (asked := self._drafts.get(message_id)):
            self._signs.answered(chat_id, asked)

    async def delete(self, chat_id: str, message_id: str) -> None:
        """Remove a message."""
        channel, _ = _parse_target(chat_id)
        await self._streams.stop(channel, message_id)
        message: JsonObject = {"channel": channel, "ts": message_id}
        try:
            await self._client.call("chat.delete", message)
        except CallFailed as error:
            if error.cause is not Cause.REFUSED:
                raise
            # It may be a stream of a process that was killed.
            await self._streams.stop(channel, message_id, is_known=False)
            await self._client.call("chat.delete", message)

    async def show_typing(self, chat_id: str) -> None:
        """Show that the agent works; Slack has no typing indicator for apps."""
        _parse_target(chat_id)
        await self._signs.show(chat_id)

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file."""
        return self._client.download(file)

    async def aclose(self) -> None:
        """Close the connections."""
        self._signs.close()
        await self._client.aclose()

    async def _begin_draft(self, chat_id: str, channel: str, thread_ts: str, piece: Piece) -> str:
        account = self._account or await self._identify()
        started = await self._streams.start(
            channel,
            thread_ts,
            piece.text,
            team=account.team,
            asker=self._signs.asker(chat_id),
        )
        return started or await self._post(channel, thread_ts, piece)

    async def _post(self, channel: str, thread_ts: str, piece: Piece) -> str:
        answer = await self._client.call(
            "chat.postMessage",
            {
                "channel": channel,
                # Slack would fetch the addresses in a text, which a model may have written.
                "unfurl_links": False,
                "unfurl_media": False,
                **_in_thread(thread_ts),
                **build_content(piece),
            },
        )
        return str(answer.get("ts"))

    async def _identify(self) -> Account:
        answer = await self._client.call("auth.test")
        user, team = str(answer.get("user_id")), str(answer.get("team_id"))
        self._account = Account(
            team=team,
            user=user,
            bot=str(answer.get("bot_id") or ""),
            name=f"@{answer.get('user')} in {answer.get('team')} (user {user})",
        )
        self._check_scopes(answer.get("granted_scopes"))
        return self._account

    async def _send_files(self, channel: str, thread_ts: str, piece: Piece) -> str:
        if channel.startswith(("U", "W")):
            # A message opens the conversation with a user by itself, a file does not.
            answer = await self._client.call("conversations.open", {"users": channel})
            opened = answer.get("channel")
            channel = str(opened.get("id")) if isinstance(opened, dict) else channel
        uploaded: list[JsonValue] = [
            await self._client.upload(file.path, file.size) for file in piece.files
        ]
        answer = await self._client.call(
            "files.completeUploadExternal",
            {"files": uploaded, "channel_id": channel, **_in_thread(thread_ts)},
        )
        files = answer.get("files")
        first = files[0] if isinstance(files, list) and files else {}
        return str(first.get("id")) if isinstance(first, dict) else ""

    async def _release_buttons(self, press: wire.Press, is_admitted: bool) -> None:
        """Remove the buttons of a message when one of them has taken effect."""
        if not is_admitted:
            return
        place = press.container
        is_command = press.actions[0].value.startswith("/")
        if is_command and is_group(place.channel_id):
            # Only the owner may use it, and anyone can press it.
            return
        blocks: list[JsonValue] = [
            cast("JsonObject", block)
            for block in press.message.blocks
            if block.get("type") != "actions"
        ]
        await self._client.call(
            "chat.update",
            {
                "channel": place.channel_id,
                "ts": place.message_ts,
                "text": press.message.text,
                "blocks": blocks,
            },
        )

    def _rules(self) -> Rules:
        settings, gateway = self._settings, self._ctx.gateway
        dm = settings.dm
        return Rules(
            reply_in_thread=settings.reply_in_thread,
            edited_messages=settings.edited_messages,
            allow_bots=frozenset(settings.allow_bots),
            reads_dm=dm.enabled,
            dm_senders=frozenset(dm.allow_from) if dm.policy == "allowlist" else None,
            commands=frozenset(gateway.commands()) if gateway is not None else frozenset(),
        )

    def _check_scopes(self, granted: JsonValue) -> None:
        if not isinstance(granted, str):
            return
        missing = [scope for scope in _SCOPES if scope not in granted.split(",")]
        if "chat:write" in missing:
            raise refused_call(
                "auth.test", {"error": "missing_scope", "needed": "chat:write"}, setting=BOT_TOKEN
            )
        for scope in missing:
            self._log.warning("the Slack app lacks the scope {}: {}", scope, _SCOPES[scope])


def _check_token(token: str, setting: str, prefix: str) -> None:
    if not token:
        raise bad_token(setting, "is not set")
    if not token.startswith(prefix):
        raise bad_token(setting, f"does not begin with {prefix}")


def _parse_target(chat_id: str) -> tuple[str, str]:
    """Return the conversation and the thread that a chat id names.

    Raises:
        CallFailed: it is none; tools can name anything.
    """
    found = _TARGET.fullmatch(chat_id)
    if found is None:
        reason = f"'{shorten(chat_id, 60)}' is not the id of a Slack conversation such as C0123ABCD"
        raise CallFailed(Cause.FORBIDDEN, reason)
    return found["channel"], found["thread"] or ""


def _in_thread(thread_ts: str) -> JsonObject:
    return {"thread_ts": thread_ts} if thread_ts else {}


def _stamp_of(dedupe_key: str | None) -> str:
    """Return the message that a key names: workspace, conversation, message, and maybe an edit."""
    parts = (dedupe_key or "").split(":")
    return parts[2] if len(parts) in {3, 4} and _STAMP.fullmatch(parts[2]) else ""
