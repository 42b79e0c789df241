"""Calls to Feishu: the token, the long connection, messages, cards and files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from nanobot_core import JsonObject
from nanobot_core.chat import (
    AccessToken,
    CallFailed,
    Cause,
    HandshakeRefused,
    PlatformApi,
    Socket,
    Upload,
    open_socket,
)
from nanobot_feishu.card import packed
from nanobot_feishu.failure import CODES, failure_of

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_feishu.settings import FeishuSettings

SERVICE = "Feishu"
_WAIT_HEADER = "x-ogw-ratelimit-reset"
_UPLOAD_LIMIT_S = 180.0
_PING_S = 120.0
_LEAST_PING_S = 0.05
_MISSED_PINGS = 2
_MESSAGES = "/open-apis/im/v1/messages"
_CARDS = "/open-apis/cardkit/v1/cards"
_ID = re.compile(r"[0-9A-Za-z_-]{1,200}", re.ASCII)
_TYPES = {".pdf": "pdf", ".doc": "doc", ".docx": "doc", ".xls": "xls", ".xlsx": "xls"}
_TYPES |= {".ppt": "ppt", ".pptx": "ppt"}


@dataclass(frozen=True, slots=True)
class Link:
    """A long connection.

    Attributes:
        service: id that pings carry.
        ping_s: seconds between pings.
    """

    socket: Socket
    service: int
    ping_s: float


class Client:
    """Calls to Feishu with the credentials of one app.

    Raises:
        CallFailed: from every method that calls Feishu.
    """

    def __init__(self, ctx: PluginContext, settings: FeishuSettings) -> None:
        self._ctx = ctx
        self._app_id = settings.app_id
        self._secret = settings.app_secret.get_secret_value()
        self._api = PlatformApi(
            settings.address, service=SERVICE, failure=failure_of, wait_header=_WAIT_HEADER
        )
        self._token = AccessToken(self._fetch_token, ctx.clock)

    async def describe_bot(self) -> tuple[str, str]:
        """Return the open id and the name of the bot."""
        answer = await self._call("GET", "/open-apis/bot/v3/info")
        bot = answer.get("bot")
        found = bot if isinstance(bot, dict) else {}
        return str(found.get("open_id") or ""), str(found.get("app_name") or "")

    async def open_link(self) -> Link:
        """Open a long connection for events."""
        credentials: JsonObject = {"AppID": self._app_id, "AppSecret": self._secret}
        answer = await self._api.call("POST", "/callback/ws/endpoint", json=credentials)
        data = answer.get("data")
        found = data if isinstance(data, dict) else {}
        url, config = found.get("URL"), found.get("ClientConfig")
        query = parse_qs(urlsplit(url).query) if isinstance(url, str) else {}
        (service,) = query.get("service_id", [""])[:1]
        if not isinstance(url, str) or not service.isdecimal():
            raise CallFailed(Cause.UNREACHABLE, "Feishu named no address for its connection")
        ping_s = ping_interval(config) or _PING_S
        try:
            socket = await open_socket(url, service=SERVICE, silence_s=silence_of(ping_s))
        except HandshakeRefused as error:
            raise refusal(error) from error
        return Link(socket, int(service), ping_s)

    async def send(
        self, place: str, root: str, kind: str, content: JsonObject, key: str, quoted: str
    ) -> str:
        """Send a message, and return its id.

        Args:
            place: id of a chat (``oc_``) or a person (``ou_``).
            root: first message of the topic, or an empty text.
            key: equal keys are sent once, within an hour; may be empty.
            quoted: message to quote, or an empty text.
        """
        body: JsonObject = {"msg_type": kind, "content": packed(content)}
        if key:
            body["uuid"] = key
        if root or quoted:
            path = f"{_MESSAGES}/{quoted or root}/reply"
            answer = await self._call("POST", path, {**body, "reply_in_thread": bool(root)})
        else:
            kind_of_id = "open_id" if place.startswith("ou_") else "chat_id"
            answer = await self._call(
                "POST",
                _MESSAGES,
                {**body, "receive_id": place},
                params={"receive_id_type": kind_of_id},
            )
        return _named(answer, "message_id")

    async def delete(self, message_id: str) -> None:
        """Remove a message."""
        await self._call("DELETE", f"{_MESSAGES}/{_checked(message_id)}")

    async def react(self, message_id: str, emoji: str) -> None:
        """Add a reaction to a message."""
        path = f"{_MESSAGES}/{_checked(message_id)}/reactions"
        await self._call("POST", path, {"reaction_type": {"emoji_type": emoji}})

    async def find(self, message_id: str) -> JsonObject:
        """Return a message as the API describes it."""
        answer = await self._call("GET", f"{_MESSAGES}/{_checked(message_id)}")
        data = answer.get("data")
        items = data.get("items") if isinstance(data, dict) else None
        found = items[0] if isinstance(items, list) and items else {}
        return found if isinstance(found, dict) else {}

    # --- cards

    async def create_card(self, card: JsonObject) -> str:
        """Create a card that can be changed, and return its id."""
        body: JsonObject = {"type": "card_json", "data": packed(card)}
        return _named(await self._call("POST", _CARDS, body), "card_id")

    async def write_text(self, card: str, element: str, text: str, sequence: int) -> None:
        """Replace the text of a card in streaming mode."""
        path = f"{_CARDS}/{card}/elements/{element}/content"
        await self._call("PUT", path, {"content": text, "sequence": sequence})

    async def set_streaming(self, card: str, sequence: int, *, is_on: bool) -> None:
        """Begin or end the streaming mode of a card."""
        settings = packed({"config": {"streaming_mode": is_on}})
        body: JsonObject = {"settings": settings, "sequence": sequence}
        await self._call("PATCH", f"{_CARDS}/{card}/settings", body)

    async def replace_card(self, card_id: str, card: JsonObject, sequence: int) -> None:
        """Replace the whole content of a card."""
        content: JsonObject = {"type": "card_json", "data": packed(card)}
        await self._call("PUT", f"{_CARDS}/{card_id}", {"card": content, "sequence": sequence})

    # --- files

    async def upload(self, file: Upload) -> tuple[str, JsonObject]:
        """Upload a file, and return the type and the content of a message with it."""
        content = await asyncio.to_thread(file.path.read_bytes)
        part = (file.path.name, content, "application/octet-stream")
        if file.kind == "image":
            form: dict[str, Any] = {"image_type": "message", "image": part}
            answer = await self._call("POST", "/open-apis/im/v1/images", form=form)
            return "image", {"image_key": _named(answer, "image_key")}
        kinds = {"voice": ("opus", "audio"), "video": ("mp4", "media")}
        plain = (_TYPES.get(file.path.suffix.lower(), "stream"), "file")
        file_type, message_type = kinds.get(file.kind, plain)
        form = {"file_type": file_type, "file_name": file.path.name, "file": part}
        answer = await self._call("POST", "/open-apis/im/v1/files", form=form)
        return message_type, {"file_key": _named(answer, "file_key")}

    async def download(self, ref: str) -> AsyncIterator[bytes]:
        """Yield a received file, named by message, type and key."""
        message_id, _, rest = ref.partition(":")
        kind, _, key = rest.partition(":")
        path = f"{_MESSAGES}/{_checked(message_id)}/resources/{_checked(key)}?type={kind}"
        headers = _bearer(await self._token.get())
        async for part in self._api.download(path, headers=headers):
            yield part

    async def aclose(self) -> None:
        """Close all connections. Can be called again."""
        await self._api.aclose()

    async def _call(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        params: Mapping[str, str | int] | None = None,
        form: Mapping[str, Any] | None = None,
    ) -> JsonObject:
        async def call(token: str) -> JsonObject:
            return await self._api.call(
                method,
                path,
                json=body,
                params=params,
                form=form,
                headers=_bearer(token),
                limit_s=_UPLOAD_LIMIT_S if form else 30.0,
            )

        return await self._token.use(call)

    async def _fetch_token(self) -> tuple[str, float]:
        path = "/open-apis/auth/v3/tenant_access_token/internal"
        body: JsonObject = {"app_id": self._app_id, "app_secret": self._secret}
        answer = await self._api.call("POST", path, json=body)
        token, seconds = answer.get("tenant_access_token"), answer.get("expire")
        if not isinstance(token, str) or not isinstance(seconds, int | float):
            raise CallFailed(Cause.UNREACHABLE, "Feishu's answer has no access token")
        self._ctx.conceal([token], name="access token")
        return token, float(seconds)


def ping_interval(config: object) -> float | None:
    """Return the seconds between pings that Feishu asks for, or ``None``."""
    asked = config.get("PingInterval") if isinstance(config, dict) else None
    if not isinstance(asked, int | float) or not asked > 0:
        return None
    return max(float(asked), _LEAST_PING_S)


def silence_of(ping_s: float) -> float:
    """Return the most seconds without a frame: Feishu answers each ping."""
    return _MISSED_PINGS * ping_s + ping_s / 2


def _checked(name: str) -> str:
    """Return an id as a part of a path; ids come from messages, which people may forge."""
    if _ID.fullmatch(name) is None:
        raise CallFailed(Cause.REFUSED, "an id of Feishu has characters that ids do not have")
    return name


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _named(answer: JsonObject, name: str) -> str:
    data = answer.get("data")
    value = data.get(name) if isinstance(data, dict) else None
    if not isinstance(value, str) or not value:
        raise CallFailed(Cause.UNREACHABLE, f"Feishu's answer has no {name}")
    return value


def refusal(error: HandshakeRefused) -> CallFailed:
    """Return why Feishu refused a long connection, which it says in headers."""
    for name in ("handshake-autherrcode", "handshake-status"):
        code = error.headers.get(name, "")
        if code.isdecimal() and int(code) in CODES:
            return CallFailed(*CODES[int(code)])
    return error
