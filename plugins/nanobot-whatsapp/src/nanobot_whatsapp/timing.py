"""Time limits of the channel, which tests shorten."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Time limits in seconds.

    Attributes:
        call_s: for a call, or a command to the bridge.
        transfer_s: for sending or fetching a file.
        check_s: between checks that the Cloud API still responds, which limits such calls.
        quiet_s: after which a connection to the bridge without a frame counts as quiet.
        refusal_s: how long the bridge may take to refuse a token.
        qr_s: how long ``nanobot channels login`` waits for a QR code of the bridge.
        scan_s: how long it waits until the code is scanned.
    """

    call_s: float = 30.0
    transfer_s: float = 180.0
    check_s: float = 300.0
    quiet_s: float = 30.0
    refusal_s: float = 1.0
    qr_s: float = 65.0
    scan_s: float = 180.0
