"""What servers and browsers send at a sign-in is taken or refused, and can then be stored."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nanobot_core import ProviderError, Tokens
from nanobot_core.net import RedirectListener
from nanobot_core.testing import FakeClock
from nanobot_openai.codex_login import ACCOUNT_ID, tokens_of
from nanobot_openai.signin_http import AuthAnswer, AuthServer

TOKENS: Final = (
    b"GET /done?", b"code=", b"state=s", b"error=", b"&", b"http://[", b"%00", b"#", b";",
    b'{"access_token": "', b'"refresh_token": "', b'"id_token": "', b'"expires_in": ', b"1e999",
    b'"error": {"code": ', b"eyJleHAiOjFlOTk5fQ", b".", b"\\ud800", b"\\u0000", b"\\n", b"NaN",
)  # fmt: skip
_SERVER: Final = AuthServer("openai_codex", "https://auth.example", None)


def fuzz_one(data: bytes) -> None:
    """Read any bytes as the address of a redirect, and as an answer."""
    listener = RedirectListener("/done", "s")
    problem = listener.offer(data.decode("ascii", "replace"))
    assert problem or listener.offer("/done?code=a&state=s"), "it is taken once"
    try:
        payload = json.loads(data)
    except (ValueError, RecursionError):
        return
    answer = AuthAnswer(200, payload if isinstance(payload, dict) else {})
    assert "\n" not in f"{answer.error}{answer.summary}{answer.text('error')}"
    try:
        tokens = tokens_of(_SERVER, answer, FakeClock())
    except ProviderError as error:
        str(error).encode()
        return
    headers = tokens.access + tokens.details[ACCOUNT_ID]
    assert headers.isascii()
    assert headers.isprintable()
    assert Tokens.from_json(json.loads(json.dumps(tokens.to_json()))) == tokens


def _token(claims: Mapping[str, Any]) -> str:
    return f"x.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()}.x"


def seeds() -> Iterator[bytes]:
    """Yield a redirect, and answers to a login and a renewal."""
    yield b"http://localhost:1455/done?code=abc&state=s"
    account = {"https://api.openai.com/auth": {"chatgpt_account_id": "a"}, "email": "me@b.c"}
    for access in (_token({"exp": 1, **account}), "opaque"):
        answer = {"access_token": access, "refresh_token": "r", "id_token": _token(account)}
        yield json.dumps({**answer, "expires_in": 3_600}).encode()
    yield b'{"error": {"code": "refresh_token_reused", "message": "log in again"}}'
