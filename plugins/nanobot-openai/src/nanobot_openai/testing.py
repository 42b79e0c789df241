"""Services that people sign in to, on the loopback; they refuse everything irregular.

The rules are those of RFC 6749, 7636 and 8628, and of the clients whose source is public.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from nanobot_core import JsonObject, JsonValue
from nanobot_core.testing import OpenAIServer, RecordedRequest, Reply, ResponsesServer

CODEX_CLIENT = "app_EMoamEEZ73f0CkXaXp7hrann"
COPILOT_CLIENT = "Iv1.b507a08c87ecfe98"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
TOKEN_S = 3_600.0


class Refused(Exception):
    """The request breaks a rule."""

    def __init__(self, error: str, status: int = 400) -> None:
        super().__init__(error)
        self.status = status


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        form: of the query or of a form.
        body: of JSON.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    def need(self, **wanted: str) -> None:
        """Refuse the request unless its form or body has exactly these values."""
        given = {**self.form, **self.body}
        for name, value in wanted.items():
            if given.get(name) != value:
                raise Refused(f"invalid_{name}")


class AuthStandIn(ABC):
    """A server in threads.

    Attributes:
        asked: the requests so far.
        now: the server's clock.
        hold: requests to the token endpoint wait for it, before the server looks at them.
        arrived: released for each of them.
        garbage: status, headers and body of all answers instead of the right ones.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.asked: list[Asked] = []
        self.now = now
        self.hold = threading.Event()
        self.hold.set()
        self.arrived = threading.Semaphore(0)
        self.garbage: tuple[int, Mapping[str, str], bytes] | None = None
        self.lock = threading.Lock()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand_in.serve(self)

            do_POST = do_GET  # noqa: N815 - the name that the server looks for

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()

    def count(self, path: str) -> int:
        return sum(request.path == path for request in self.asked)

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        data = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        kind = handler.headers.get("content-type", "")
        asked = Asked(
            handler.command,
            parts.path,
            {name.lower(): value for name, value in handler.headers.items()},
            dict(parse_qsl(data.decode() if "form" in kind else parts.query)),
            json.loads(data) if "json" in kind else {},
        )
        if asked.path == "/oauth/token":
            self.arrived.release()
            self.hold.wait(10)
            if _is_gone(handler.connection):
                return  # as if the request had been lost
        with self.lock:
            self.asked.append(asked)
            try:
                status, headers, payload = self.answer(asked)
            except Refused as refused:
                status, headers = refused.status, {}
                payload = {"error": str(refused), "error_description": "secret-in-description"}
        body = json.dumps(payload).encode()
        if self.garbage is not None:
            status, headers, body = self.garbage
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    @abstractmethod
    def answer(self, asked: Asked) -> tuple[int, Mapping[str, str], Mapping[str, Any]]:
        """Return status, headers and JSON of the answer."""


def _is_gone(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable) and not connection.recv(1, socket.MSG_PEEK)


def web_token(claims: Mapping[str, Any]) -> str:
    """Return a JSON Web Token with an invalid signature."""
    parts = [{"alg": "RS256"}, claims, {"signed": secrets.token_hex(8)}]
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts
    )


class ChatGPTStandIn(AuthStandIn):
    """auth.openai.com: codes are valid once, and so are refresh tokens.

    Attributes:
        redirects: the registered addresses.
        allows: whether the person allows the access.
        pending: requests for the result of a device's code that come too early.
        interval_s: seconds between two of them.
        access: the valid access token.
        account: id of the account; empty for one without a plan.
    """

    account_name = "me@example.org"

    def __init__(self, ports: tuple[int, ...], now: Callable[[], float] = time.time) -> None:
        super().__init__(now)
        self.redirects = [f"http://localhost:{port}/auth/callback" for port in ports]
        self.redirects.append(f"{self.url}/deviceauth/callback")
        self.allows = True
        self.pending = 0
        self.interval_s = 5
        self.lasts_s = TOKEN_S
        self.access = ""
        self.account = "account-1"
        self.refresh = ""
        self.spent: set[str] = set()
        self.revoked: list[str] = []
        self._codes: dict[str, tuple[str, str]] = {}
        """Code to the challenge and the redirect."""
        self._device = ("", "")
        self._asked_at = float("-inf")

    def answer(self, asked: Asked) -> tuple[int, Mapping[str, str], Mapping[str, Any]]:
        match asked.method, asked.path:
            case "GET", "/oauth/authorize":
                return 302, {"Location": self._authorize(asked)}, {}
            case "POST", "/oauth/token":
                return 200, {}, self._token(asked)
            case "POST", "/oauth/revoke":
                asked.need(client_id=CODEX_CLIENT, token_type_hint="refresh_token")  # noqa: S106 - no token
                self.revoked.append(asked.body["token"])
                return 200, {}, {}
            case "POST", "/api/accounts/deviceauth/usercode":
                asked.need(client_id=CODEX_CLIENT)
                self._device = (secrets.token_hex(8), "ABCD-EFGH")
                found = {"device_auth_id": self._device[0], "user_code": self._device[1]}
                return 200, {}, {**found, "interval": str(self.interval_s)}
            case "POST", "/api/accounts/deviceauth/token":
                return self._device_token(asked)
        raise Refused("not_found", 404)

    def _authorize(self, asked: Asked) -> str:
        asked.need(
            response_type="code",
            client_id=CODEX_CLIENT,
            code_challenge_method="S256",
            scope="openid profile email offline_access",
            id_token_add_organizations="true",  # noqa: S106 - no token
            codex_cli_simplified_flow="true",
        )
        redirect, challenge = asked.form.get("redirect_uri", ""), asked.form["code_challenge"]
        if redirect not in self.redirects or len(challenge) != 43 or not asked.form["originator"]:
            raise Refused("invalid_request")
        if len(asked.form["state"]) < 32:
            raise Refused("invalid_state")
        answer = {"error": "access_denied", "error_description": "secret-in-description"}
        if self.allows:
            answer = {"code": secrets.token_urlsafe(16)}
            self._codes[answer["code"]] = (challenge, redirect)
        return f"{redirect}?{urlencode({**answer, 'state': asked.form['state']})}"

    def _device_token(self, asked: Asked) -> tuple[int, Mapping[str, str], Mapping[str, Any]]:
        asked.need(device_auth_id=self._device[0], user_code=self._device[1])
        if self.now() - self._asked_at < self.interval_s:
            raise Refused("too_early", 400)
        self._asked_at = self.now()
        if self.pending:
            self.pending -= 1
            return 403, {}, {"error": {"code": "deviceauth_authorization_unknown"}}
        verifier = secrets.token_urlsafe(48)
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        code = secrets.token_urlsafe(16)
        self._codes[code] = (challenge, f"{self.url}/deviceauth/callback")
        self._device = ("", "")
        return (
            200,
            {},
            {
                "authorization_code": code,
                "code_verifier": verifier,
                "code_challenge": challenge,
            },
        )

    def _token(self, asked: Asked) -> Mapping[str, Any]:
        if asked.body:
            asked.need(client_id=CODEX_CLIENT, grant_type="refresh_token")
            given = asked.body["refresh_token"]
            if given in self.spent:
                self.refresh = self.access = ""  # as after a theft: all tokens are revoked
                raise Refused("refresh_token_reused", 401)
            if given != self.refresh or not given:
                raise Refused("invalid_grant", 401)
            self.spent.add(given)
            return self.issue()
        asked.need(client_id=CODEX_CLIENT, grant_type="authorization_code")
        challenge, redirect = self._codes.pop(asked.form["code"], ("", ""))
        digest = hashlib.sha256(asked.form["code_verifier"].encode()).digest()
        is_proven = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == challenge
        if not is_proven or asked.form["redirect_uri"] != redirect:
            raise Refused("invalid_grant")
        return self.issue()

    def issue(self) -> Mapping[str, Any]:
        """Return new tokens, which are the valid ones from now on."""
        claims = {"https://api.openai.com/auth": {"chatgpt_account_id": self.account}}
        ends_at = int(self.now() + self.lasts_s)
        self.access = web_token({"exp": ends_at, **(claims if self.account else {})})
        self.refresh = f"refresh-{secrets.token_urlsafe(16)}"
        id_token = web_token({"email": self.account_name, **(claims if self.account else {})})
        return {
            "access_token": self.access,
            "refresh_token": self.refresh,
            "id_token": id_token,
        }


class GitHubStandIn(AuthStandIn):
    """github.com and api.github.com.

    Attributes:
        errors: what the next requests for the result of a code get.
        has_copilot: whether the account has a subscription.
        api_base: where the account's requests go.
        token: GitHub's token.
        access: the valid token of Copilot.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        super().__init__(now)
        self.errors: list[str] = []
        self.interval_s = 5
        self.has_copilot = True
        self.api_base = ""
        self.token = ""
        self.access = ""
        self._device = ""
        self._asked_at = float("-inf")

    def answer(self, asked: Asked) -> tuple[int, Mapping[str, str], Mapping[str, Any]]:
        if asked.headers.get("accept") != "application/json":
            raise Refused("not_acceptable", 406)
        match asked.method, asked.path:
            case "POST", "/login/device/code":
                asked.need(client_id=COPILOT_CLIENT, scope="read:user")
                self._device = secrets.token_hex(20)
                return (
                    200,
                    {},
                    {
                        "device_code": self._device,
                        "user_code": "WDJB-MJHT",
                        "verification_uri": f"{self.url}/login/device",
                        "expires_in": 900,
                        "interval": self.interval_s,
                    },
                )
            case "POST", "/login/oauth/access_token":
                return 200, {}, self._result(asked)
            case "GET", "/user":
                self._check_token(asked)
                return 200, {}, {"login": "octocat"}
            case "GET", "/copilot_internal/v2/token":
                return 200, {}, self._exchange(asked)
        raise Refused("not_found", 404)

    def _result(self, asked: Asked) -> Mapping[str, Any]:
        asked.need(client_id=COPILOT_CLIENT, grant_type=DEVICE_GRANT)
        if asked.form["device_code"] != self._device:
            return {"error": "incorrect_device_code"}
        if self.now() - self._asked_at < self.interval_s:
            self.interval_s += 5
            return {"error": "slow_down", "interval": self.interval_s}
        self._asked_at = self.now()
        if self.errors:
            error = self.errors.pop(0)
            self.interval_s += 5 if error == "slow_down" else 0
            return {"error": error, "interval": self.interval_s}
        self._device = ""
        self.token = f"ghu_{secrets.token_hex(18)}"
        return {"access_token": self.token, "token_type": "bearer", "scope": "read:user"}

    def _check_token(self, asked: Asked) -> None:
        if asked.headers.get("authorization") != f"token {self.token}" or not self.token:
            raise Refused("bad_credentials", 401)

    def _exchange(self, asked: Asked) -> Mapping[str, Any]:
        self._check_token(asked)
        if "/" not in asked.headers.get("editor-version", ""):
            raise Refused("bad_request")
        if not self.has_copilot:
            raise Refused("no_access", 403)
        self.access = f"tid={secrets.token_hex(20)};exp=1;proxy-ep=proxy"
        return {
            "token": self.access,
            "expires_at": int(self.now()) + 1_500,
            "refresh_in": 1_440,
            "endpoints": {"api": self.api_base},
        }


def _error(status: int, code: str) -> Reply:
    return Reply(status=status, body=json.dumps({"error": {"code": code}}).encode())


class CodexServer(ResponsesServer):
    """ChatGPT's backend: only streamed answers, with instructions, nothing stored.

    Attributes:
        auth: where the accounts are.
    """

    base_path: ClassVar[str] = "/backend-api/codex"
    auth: ChatGPTStandIn

    def render_models(self) -> JsonObject:
        rows: list[JsonValue] = [
            {"slug": name, "visibility": "list", "context_window": 272_000} for name in self.models
        ]
        return {"models": [*rows, {"slug": "internal", "visibility": "hide"}]}

    def refusal(self, request: RecordedRequest) -> Reply | None:
        headers, body = request.headers, request.body
        if headers.get("authorization") != f"Bearer {self.auth.access}":
            return _error(401, "token_expired")
        if headers.get("chatgpt-account-id") != self.auth.account:
            return _error(403, "wrong_account")
        if not headers.get("originator") or headers.get("accept") != "text/event-stream":
            return _error(400, "bad_client")
        refused = {"max_output_tokens", "temperature", "top_p", "metadata"} & body.keys()
        if refused or body.get("store") is not False or body.get("stream") is not True:
            return _error(400, "unsupported_parameter")
        if not body.get("instructions"):
            return _error(400, "instructions_required")
        if body.get("include") != ["reasoning.encrypted_content"]:
            return _error(400, "include_required")
        return super().refusal(request)


class CopilotServer(OpenAIServer):
    """Copilot's chat completions.

    Attributes:
        auth: where the accounts are.
    """

    base_path: ClassVar[str] = ""
    auth: GitHubStandIn

    def refusal(self, request: RecordedRequest) -> Reply | None:
        headers, messages = request.headers, request.body["messages"]
        if headers.get("authorization") != f"Bearer {self.auth.access}":
            return _error(401, "token_expired")
        if headers.get("copilot-integration-id") != "vscode-chat":
            return _error(400, "unknown_integration")
        if "/" not in headers.get("editor-version", ""):
            return _error(400, "missing_editor_version")
        caused_by = "user" if messages[-1]["role"] == "user" else "agent"
        if headers.get("x-initiator") != caused_by:
            return _error(400, "wrong_initiator")
        has_images = "image_url" in json.dumps(messages)
        if (headers.get("copilot-vision-request") == "true") is not has_images:
            return _error(400, "wrong_vision_header")
        return super().refusal(request)
