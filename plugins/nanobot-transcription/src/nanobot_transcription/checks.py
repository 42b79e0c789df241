"""The checks of transcription for ``nanobot doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import AuthenticationFailed, CheckResult
from nanobot_transcription.endpoint import key_hint, resolve_endpoint
from nanobot_transcription.settings import TranscriptionSettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext


async def check_endpoint(ctx: PluginContext) -> CheckResult:
    """Report where recordings go, or why transcription does not work. Sends nothing."""
    settings = ctx.settings(TranscriptionSettings)
    try:
        endpoint = resolve_endpoint(ctx, settings)
    except AuthenticationFailed:
        return CheckResult(
            status="warning",
            message=f"voice messages stay files, because '{settings.provider}' has no usable key",
            remedy=key_hint(settings.provider),
        )
    return CheckResult(
        status="ok",
        message=(
            f"voice messages go to '{endpoint.provider}' at {endpoint.host}, "
            f"model {endpoint.fields['model']}"
        ),
    )
