"""Addresses in arguments of ``curl`` and ``wget``: whether they may be reached."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nanobot_shell.syntax import Word
from nanobot_shell.unwrap import Step

if TYPE_CHECKING:
    from nanobot_core.net import NetworkPolicy

FETCHERS = frozenset({"curl", "wget", "aria2c", "http", "https", "xh", "wget2", "curlie"})
_LOCAL_NAMES = (".local", ".internal", ".lan", ".home.arpa", ".intranet", ".corp")
_REDIRECTING = re.compile(
    r"--(resolve|connect-to|unix-socket|abstract-unix-socket|config|input-file|proxy\d?|preproxy"
    r"|socks\w*|interface|doh-url)\b|-[a-zA-Z]*[Kxi]$"
)
_NUMERIC = re.compile(r"[0-9a-fA-Fx.]+$")


def refusal_of_target(step: Step, network: NetworkPolicy) -> str:
    """Return why the addresses of a fetching `step` are refused, or an empty string.

    Names are judged by spelling only: what they resolve to may change before the command runs,
    so an answer of the resolver would prove nothing. Addresses are judged by what the owner's
    settings of the network allow.
    """
    if step.name not in FETCHERS:
        return ""
    for word in step.arguments:
        if _REDIRECTING.match(word.text):
            return f"{step.name} {word.text} is refused here; name the address in the call itself"
        if _is_refused(word, network):
            return (
                f"{step.name} to {word.text!r} is refused: it is an internal address; only public "
                "hosts, and networks that the owner opened (tools.ssrf_whitelist), may be reached"
            )
    return ""


def _is_refused(word: Word, network: NetworkPolicy) -> bool:
    """Whether `word` is an address that the policy does not allow, or hides which one it is."""
    text = word.text.partition("=")[2] if word.text.startswith("--") else word.text
    if not text or (text.startswith("-") and "://" not in text):
        return False
    url = text if "://" in text else f"//{text}"
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".").lower()
    except ValueError:
        return True
    if parts.scheme not in {"", "http", "https"}:
        return True
    if not host:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        # RFC 6761, section 6.3: such names always mean the loopback address.
        return not network.is_allowed("127.0.0.1")
    if host.endswith(_LOCAL_NAMES):
        return True
    address = _address(host)
    return address is not None and not network.is_allowed(address)


def _address(host: str) -> str | None:
    """Return the address that `host` spells, or ``None`` where it is a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        if not _NUMERIC.match(host) or not any(character.isdigit() for character in host):
            return None
    try:
        # Decimal, octal, hexadecimal and short forms, as libc reads them.
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None
