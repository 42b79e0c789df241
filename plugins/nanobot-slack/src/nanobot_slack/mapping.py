"""Converts Slack's events to messages of nanobot, with pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from nanobot_core import InboundMessage, JsonObject, shorten
from nanobot_core.chat import Attachment, Received
from nanobot_slack import wire

CHANNEL = "slack"
SLACKBOT = "USLACKBOT"
_SPOKEN = frozenset({"", "file_share", "thread_broadcast", "me_message"})
"""Subtypes of what people write; all others are notices of Slack."""
_QUOTE_CHARS = 1_000
_MARKUP = re.compile(r"<([^<>]*)>")
_GONE = frozenset({"tombstone", "hidden_by_limit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The agent in its workspace.

    Attributes:
        team: id of the workspace.
        user: id of the agent's user, by which people mention it.
        bot: another id of the same, in messages of apps.
        name: of the agent and its workspace, for the owner.
    """

    team: str
    user: str
    bot: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How messages are read; see `SlackSettings`.

    Attributes:
        dm_senders: people who may write direct messages; ``None`` if the list does not apply.
        commands: names of the gateway's commands.
    """

    reply_in_thread: bool = True
    edited_messages: bool = False
    allow_bots: Collection[str] = ()
    reads_dm: bool = True
    dm_senders: Collection[str] | None = None
    commands: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads what Slack sends to an account."""

    account: Account
    rules: Rules

    def event(self, payload: dict[str, object]) -> Received | None:
        """Return the message of an event, or ``None`` if it has none for the agent.

        Raises:
            ValidationError: the event is malformed.
        """
        content = payload.get("event")
        kind = wire.EventType.model_validate(content)
        # Slack sends a mention twice, and the keys of both are equal.
        if kind.type not in {"message", "app_mention"}:
            return None
        if kind.subtype == "message_changed":
            event = wire.Event.model_validate(content)
            return self._edited(event) if self.rules.edited_messages else None
        # A deletion, for example, has no author.
        if kind.subtype not in {*_SPOKEN, "bot_message"}:
            return None
        event = wire.Event.model_validate(content)
        return self.message(event, event.channel)

    def message(self, message: wire.Message, channel: str, *, edited: str = "") -> Received | None:
        """Return a message of a conversation; also used for histories.

        Args:
            channel: id of the conversation.
            edited: time of the edit that changed it.
        """
        sender = message.user or message.bot_id
        if message.subtype not in {*_SPOKEN, "bot_message"} or not self._reads(message, channel):
            return None
        spoken, is_mentioned = self._without_mention(message.text)
        files = tuple(_attachments(message))
        said = "\n".join(part for part in (read_text(spoken), *_linked(message)) if part)
        shared = next((each for each in message.attachments if each.is_share and each.text), None)
        if not (said or files or shared):
            return None
        # The first message of a thread names itself.
        thread_ts = "" if message.thread_ts == message.ts else message.thread_ts
        answers = bool(thread_ts) and message.parent_user_id == self.account.user
        key = f"{self.account.team}:{channel}:{message.ts}"
        chat_id, session = self._chat(channel, message.ts, thread_ts)
        inbound = InboundMessage(
            channel=CHANNEL,
            sender_id=sender,
            chat_id=chat_id,
            content=_content(said, shared, is_edited=bool(edited)),
            timestamp=_instant(edited or message.ts),
            metadata=_facts(channel, message.ts, thread_ts, is_edited=bool(edited)),
            session_key_override=session,
            dedupe_key=f"{key}:{edited}" if edited else key,
            is_group=is_group(channel),
            is_addressed=is_mentioned or answers,
            is_forwarded=shared is not None and not said,
        )
        return Received(message=inbound, files=files)

    def press(self, press: wire.Press) -> Received | None:
        """Return the value of a pressed button as a message."""
        value = press.actions[0].value if press.actions else ""
        place = press.container
        is_button = press.type == "block_actions" and value
        if not is_button or not self._reads_dm(place.channel_id, press.user.id):
            return None
        thread = place.thread_ts or press.message.thread_ts
        thread = "" if thread == place.message_ts else thread
        # The message with the button opens no thread.
        chat_id, session = self._chat(place.channel_id, "", thread)
        inbound = InboundMessage(
            channel=CHANNEL,
            sender_id=press.user.id,
            chat_id=chat_id,
            content=value,
            metadata=_facts(place.channel_id, place.message_ts, thread) | {"button": True},
            session_key_override=session,
            dedupe_key=":".join(
                ("press", place.channel_id, place.message_ts, press.actions[0].action_ts)
            ),
            is_group=is_group(place.channel_id),
            is_addressed=True,
        )
        return Received(message=inbound)

    def command(self, command: wire.Command) -> Received | None:
        """Return a slash command as a message.

        An app usually has one, ``/nanobot``, because Slack's own names cannot be used: ``/nanobot
        stop`` is the command ``/stop``, and ``/nanobot hello`` is the text ``hello``.
        """
        text = read_text(command.text)
        name = command.command.removeprefix("/")
        if name in self.rules.commands:
            text = f"/{name} {text}".strip()
        elif text.split(" ")[0] in self.rules.commands:
            text = f"/{text}"
        if not text or not self._reads_dm(command.channel_id, command.user_id):
            return None
        chat_id, session = self._chat(command.channel_id, "", "")
        inbound = InboundMessage(
            channel=CHANNEL,
            sender_id=command.user_id,
            chat_id=chat_id,
            content=text,
            metadata={"is_group": is_group(command.channel_id), "command": True},
            session_key_override=session,
            dedupe_key=f"command:{command.trigger_id}",
            is_group=is_group(command.channel_id),
            is_addressed=True,
        )
        return Received(message=inbound)

    def _edited(self, event: wire.Event) -> Received | None:
        new, old = event.message, event.previous_message
        # Slack reports the previews of links as changes of the message too.
        if new is None or new.edited is None or not new.edited.ts:
            return None
        if (old is not None and old.text == new.text) or new.edited.user not in {"", new.user}:
            return None
        return self.message(new, event.channel, edited=new.edited.ts)

    def _reads(self, message: wire.Message, channel: str) -> bool:
        """Whether the author of a message may be heard at all."""
        own = {self.account.user, self.account.bot, SLACKBOT} - {""}
        authors = {message.user, message.bot_id} - {""}
        if not authors or authors & own:
            return False
        is_bot = bool(message.bot_id) or message.subtype == "bot_message"
        if is_bot and not authors & set(self.rules.allow_bots):
            return False
        return self._reads_dm(channel, message.user)

    def _reads_dm(self, channel: str, sender: str) -> bool:
        if is_group(channel):
            return True
        listed = self.rules.dm_senders
        return self.rules.reads_dm and (listed is None or sender in listed)

    def _chat(self, channel: str, ts: str, thread_ts: str) -> tuple[str, str | None]:
        """Return the chat of a message, and its session if that is another."""
        if not is_group(channel):
            # The answer belongs into the thread, but the conversation is one.
            session = f"{CHANNEL}:{channel}"
            return (f"{channel}:{thread_ts}", session) if thread_ts else (channel, None)
        thread = thread_ts or (ts if self.rules.reply_in_thread else "")
        return (f"{channel}:{thread}" if thread else channel), None

    def _without_mention(self, text: str) -> tuple[str, bool]:
        """Return a text without mentions of the agent, and whether there are any."""
        mention = re.compile(rf"[ \t]*<@{re.escape(self.account.user)}(\|[^<>]*)?>")
        return mention.subn("", text)[0].strip(), mention.search(text) is not None


def is_group(channel: str) -> bool:
    """Whether a conversation has more people than one and the agent."""
    return not channel.startswith("D")


def read_text(text: str) -> str:
    """Return Slack's form of a text as its author sees it."""
    plain = _MARKUP.sub(lambda found: _visible(found[1]), text)
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        plain = plain.replace(entity, character)
    return plain.strip()


def _visible(markup: str) -> str:
    target, _, label = markup.partition("|")
    if target.startswith(("@", "#")):
        return f"{target[0]}{label or target[1:]}"
    if target.startswith("!"):
        # Groups of people and dates have a label, the rest is such as ``!here``.
        return label or f"@{target[1:]}"
    bare = target.removeprefix("mailto:").removeprefix("tel:")
    return f"{label} ({target})" if label and label not in (bare, target) else bare


def _content(said: str, shared: wire.Shared | None, *, is_edited: bool) -> str:
    """Add what a text refers to. A new command has no context, so that it is recognised."""
    if said.startswith("/") and not is_edited:
        return said
    lines = ["[edited]"] if is_edited else []
    if shared is not None:
        words = read_text(shared.text)
        lines.append(f"[forwarded from {shared.author_name or 'an unknown sender'}]")
        lines.append(f"> {shorten(words, _QUOTE_CHARS)}" if said else words)
    return "\n".join(part for part in (*lines, said) if part)


def _attachments(message: wire.Message) -> Iterator[Attachment]:
    for file in message.files:
        if file.mode in _GONE or file.is_external:
            continue
        name = PurePosixPath((file.name or file.title).replace("\\", "/")).name or file.id
        # Files of other workspaces come without an address, which their id finds.
        url = file.url_private_download or file.url_private
        yield Attachment(ref=url or file.id, name=name, size=file.size)


def _linked(message: wire.Message) -> Iterator[str]:
    """Describe files that are kept elsewhere, such as in another company's cloud."""
    for file in message.files:
        if file.is_external and file.mode not in _GONE:
            address = " ".join((file.external_url or file.url_private).split())
            yield f"[file: {file.name or file.title or file.id}, {address}]"


def _facts(channel: str, ts: str, thread_ts: str, *, is_edited: bool = False) -> JsonObject:
    facts: JsonObject = {"message_id": ts, "is_group": is_group(channel)}
    if thread_ts:
        facts["thread"] = thread_ts
    if is_edited:
        facts["edited"] = True
    return facts


def _instant(ts: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(ts), UTC)
    except (OverflowError, ValueError, OSError):
        return None
