"""The trigger ``webhook``: a program posts to the address of a job."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from nanobot_core import Folder, OutboundMessage, ToolDenied, Trigger

if TYPE_CHECKING:
    from nanobot_core import Fire, JsonObject, PluginContext, ToolContext

PATH = "/webhook/hooks"
_KEY_FILE = PurePath("hooks.key")
_KEY_BYTES = 32


class _Stored(BaseModel):
    """Options of a job, as `WebhookTrigger.check` returns them.

    Attributes:
        name: last part of the address.
        nonce: gives the secret of this job, together with the key of this installation. So neither
            the file of the jobs nor its copies contain a secret.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    nonce: str


class Hooks:
    """The jobs that wait for requests; get it with ``ctx.shared(Hooks)``."""

    def __init__(self, ctx: PluginContext) -> None:
        self._folder = Folder(ctx.data_dir)
        self._waiting: dict[str, tuple[_Stored, str, Fire]] = {}

    async def add(self, job_id: str, stored: _Stored, fire: Fire) -> None:
        """Start a job for each request with its secret, until cancelled."""
        secret = await asyncio.to_thread(self.secret_of, stored)
        entry = self._waiting[job_id] = (stored, secret, fire)
        try:
            await asyncio.Event().wait()
        finally:
            if self._waiting.get(job_id) is entry:
                del self._waiting[job_id]

    def named(self, name: str) -> Iterator[tuple[str, Fire]]:
        """Yield secret and start of each job with this name."""
        for stored, secret, fire in list(self._waiting.values()):
            if stored.name == name:
                yield secret, fire

    def secret_of(self, stored: _Stored) -> str:
        """Return the secret of a job, in the form of Standard Webhooks; blocks."""
        digest = hmac.digest(self._key(), f"{stored.name}\n{stored.nonce}".encode(), hashlib.sha256)
        return f"whsec_{base64.b64encode(digest).decode()}"

    def _key(self) -> bytes:
        """Return the key of this installation, created at its first use."""
        try:
            key = self._folder.read(_KEY_FILE, _KEY_BYTES)
        except FileNotFoundError:
            key = b""
        if len(key) < _KEY_BYTES:
            key = secrets.token_bytes(_KEY_BYTES)
            self._folder.replace(_KEY_FILE, key, mode=0o600)
        return key


_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "name": {
            "type": "string",
            "pattern": "^[a-z0-9][a-z0-9-]{0,62}$",
            "description": "Last part of the address, such as 'deploy'.",
        }
    },
    "required": ["name"],
    "additionalProperties": False,
}


class WebhookTrigger(Trigger):
    """Waits for requests with the secret of the job."""

    name = "webhook"
    description = "a program sends an HTTP POST to an address of this job"
    parameters = _PARAMETERS

    def __init__(self, ctx: PluginContext) -> None:
        self._hooks = ctx.shared(Hooks)

    async def check(self, context: ToolContext, options: JsonObject) -> JsonObject:
        """Make the secret of the job and send it to the owner, past the model.

        Raises:
            ToolDenied: a guest asks, or others would read the secret.
            ToolFailed: nothing can be sent to this chat.
        """
        if not context.is_owner:
            msg = "only the owner can open an address for programs"
            raise ToolDenied(msg)
        if context.requester.is_group:
            msg = "everyone in this chat would read the secret; ask in a private chat"
            raise ToolDenied(msg)
        stored = _Stored(name=str(options["name"]), nonce=secrets.token_hex(12))
        secret = await asyncio.to_thread(self._hooks.secret_of, stored)
        text = (
            f"Programs start the job with `POST {PATH}/{stored.name}` at the gateway's HTTP server "
            f"and the header `Authorization: Bearer {secret}`. The secret is shown only now; to "
            "replace it, remove the job and add it again."
        )
        await context.send(
            OutboundMessage(channel=context.channel, chat_id=context.chat_id, content=text)
        )
        return stored.model_dump(mode="json")

    async def watch(self, job_id: str, options: JsonObject, fire: Fire) -> None:
        """Wait for requests; `nanobot_webhook.hook_intake` receives them."""
        await self._hooks.add(job_id, _Stored.model_validate(options), fire)

    def describe(self, options: JsonObject) -> str:
        """Return the address."""
        return f"a program posts to {PATH}/{_Stored.model_validate(options).name}"
