"""Where recordings go and what goes with them, settled before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nanobot_core import AuthenticationFailed
from nanobot_transcription.services import SERVICES

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_transcription.settings import TranscriptionSettings

_PATH = "/audio/transcriptions"
_VERSION = re.compile(r"v\d+\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One service as the owner has set it up.

    Attributes:
        provider: name of the service.
        url: address of transcriptions.
        key: key of the service, or an empty text.
        fields: form fields that go with each recording.
    """

    provider: str
    url: str = field(repr=False)
    key: str = field(repr=False)
    fields: Mapping[str, str]

    @property
    def host(self) -> str:
        """Host that recordings go to."""
        return urlsplit(self.url).hostname or ""


def resolve_endpoint(ctx: PluginContext, settings: TranscriptionSettings) -> Endpoint:
    """Return the endpoint that the settings and the environment describe.

    Raises:
        AuthenticationFailed: the service needs a key and none is set, or it cannot be sent.
    """
    service = SERVICES[settings.provider]
    hint = key_hint(settings.provider)
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    # Keys are pasted, often with a line end.
    key = (key or ctx.environment((service.key_variable,)).get(service.key_variable, "")).strip()
    if not key and service.needs_key:
        raise AuthenticationFailed(settings.provider, f"its key is missing; {hint}")
    if not (key.isascii() and key.isprintable()):
        # The HTTP library would quote it in its error.
        reason = f"the key holds characters that are not printable ASCII; {hint}"
        raise AuthenticationFailed(settings.provider, reason)
    fields = {"model": settings.model or service.model, "response_format": "json"}
    if settings.language:
        fields["language"] = settings.language
    return Endpoint(
        provider=settings.provider,
        url=transcription_url(settings.api_base or service.base),
        key=key,
        fields=fields,
    )


def key_hint(provider: str) -> str:
    """Return what to do about a key that is missing or refused."""
    return f"set transcription.api_key or {SERVICES[provider].key_variable}"


def transcription_url(base: str) -> str:
    """Return the address of transcriptions below `base`, which may lack its ``/v1``.

    A path that already names a version gets none, and a base that ends in
    ``/audio/transcriptions`` is the address itself.
    """
    parts = urlsplit(base)
    path = parts.path.rstrip("/")
    if not path.endswith(_PATH):
        if not any(_VERSION.fullmatch(segment) for segment in path.split("/")):
            path += "/v1"
        path += _PATH
    return parts._replace(path=path, fragment="").geturl()
