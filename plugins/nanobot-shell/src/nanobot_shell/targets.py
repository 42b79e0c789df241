"""Addresses in arguments of ``curl`` and ``wget``: whether they lead into private networks."""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlsplit

from nanobot_shell.syntax import Word
from nanobot_shell.unwrap import Step

FETCHERS = frozenset({"curl", "wget", "aria2c", "http", "https", "xh", "wget2", "curlie"})
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".intranet", ".corp")
_REDIRECTING = re.compile(
    r"--(resolve|connect-to|unix-socket|abstract-unix-socket|config|input-file|proxy\d?|preproxy"
    r"|socks\w*|interface|doh-url)\b|-[a-zA-Z]*[Kxi]$"
)
_NUMERIC = re.compile(r"[0-9a-fA-Fx.]+$")


def refusal_of_target(step: Step) -> str:
    """Return why the addresses of a fetching `step` are refused, or an empty string.

    Names are judged by spelling only: what they resolve to may change before the command runs,
    so an answer of the resolver would prove nothing.
    """
    if step.name not in FETCHERS:
        return ""
    for word in step.arguments:
        if _REDIRECTING.match(word.text):
            return f"{step.name} {word.text} is refused here; name the address in the call itself"
        if is_internal(word):
            return (
                f"{step.name} to {word.text!r} is refused: it is an internal address; only public "
                "hosts may be reached from here"
            )
    return ""


def is_internal(word: Word) -> bool:
    """Whether `word` is an address of this machine or of a private network."""
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
    return host == "localhost" or host.endswith(_LOCAL_NAMES) or _is_private(host)


def _is_private(host: str) -> bool:
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not _NUMERIC.match(host) or not any(character.isdigit() for character in host):
            return False
        try:
            # Decimal, octal, hexadecimal and short forms, as libc reads them.
            address = ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return False
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if address in ipaddress.IPv6Network("64:ff9b::/96"):
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        address = embedded or address
    return not address.is_global or address.is_multicast
