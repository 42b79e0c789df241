"""Settings of the WhatsApp channel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from nanobot_core import ChannelSettings, PluginSettings

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def _check_url(url: str) -> str:
    address = urlsplit(url)
    if address.scheme not in {"http", "https"} or not address.hostname:
        msg = "not an http or https address"
        raise ValueError(msg)
    if address.scheme == "http" and address.hostname not in _LOOPBACK:
        msg = "not an https address; the access token would be sent unencrypted"
        raise ValueError(msg)
    return url.rstrip("/")


def _check_bridge_url(url: str) -> str:
    address = urlsplit(url)
    if address.scheme != "ws" or address.hostname not in _LOOPBACK:
        msg = "not a ws:// address of this computer; the bridge's token is sent unencrypted"
        raise ValueError(msg)
    return url


class TemplateSettings(PluginSettings):
    """Section ``channels.whatsapp.template``: sent when WhatsApp accepts nothing else.

    Attributes:
        name: of an approved message template; empty for none.
        language: of the template, such as ``en_US``.
        with_text: the body of the template has one parameter, which gets the text of the message.
            Without it, the template asks the person to write.
    """

    name: str = ""
    language: str = "en_US"
    with_text: bool = False


class WhatsAppSettings(ChannelSettings):
    """Section ``channels.whatsapp``.

    Attributes:
        mode: ``cloud`` for the Cloud API, ``bridge`` for a bridge process; if empty, ``cloud`` with
            an `access_token` and ``bridge`` without.
        access_token: of a system user of the business, for the Cloud API.
        phone_number_id: id of the agent's phone number, not the number itself.
        app_secret: of the app; WhatsApp signs its calls with it.
        verify_token: any text, which is also entered where WhatsApp asks for the callback URL.
        api_base: address of the Graph API.
        api_version: version of the Graph API.
        reply_to_message: quote the message in the reply.
        template: what is sent more than 24 hours after the person's last message.
        bridge_url: address of the bridge on this computer.
        bridge_token: ``BRIDGE_TOKEN`` of the bridge.
        bridge_media_dir: folder in which the bridge saves received files; files elsewhere are
            refused. If empty, no file is accepted.
        identity_resolution: a key of the original; the numbers behind other ids of people are
            always remembered.
    """

    mode: Literal["", "cloud", "bridge"] = ""
    access_token: SecretStr = SecretStr("")
    phone_number_id: str = ""
    app_secret: SecretStr = SecretStr("")
    verify_token: SecretStr = SecretStr("")
    api_base: Annotated[str, AfterValidator(_check_url)] = "https://graph.facebook.com"
    api_version: str = Field(default="v25.0", pattern=r"^v[0-9]{1,3}\.[0-9]{1,2}$")
    reply_to_message: bool = False
    template: TemplateSettings = Field(default_factory=TemplateSettings)
    bridge_url: Annotated[str, AfterValidator(_check_bridge_url)] = "ws://localhost:3001"
    bridge_token: SecretStr = SecretStr("")
    bridge_media_dir: Path | None = None
    identity_resolution: bool = False

    @property
    def uses_bridge(self) -> bool:
        """Whether messages come from a bridge, and not from the Cloud API."""
        if self.mode:
            return self.mode == "bridge"
        return not self.access_token.get_secret_value()
