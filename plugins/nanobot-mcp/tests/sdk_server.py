"""A server written with the SDK: ``sdk_server.py stdio|sse|http|oauth``.

Over HTTP it prints its address when it listens.
"""

from __future__ import annotations

import base64
import secrets
import socket
import sys
import time
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import AnyHttpUrl, BaseModel

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
LIFETIME_S = 1_000_000_000


class Sum(BaseModel):
    total: int


class OneClient(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """An authorization server that allows everything at once and forgets nothing."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.renewals: dict[str, RefreshToken] = {}
        self.tokens: dict[str, AccessToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = secrets.token_hex(16)
        self.codes[code] = AuthorizationCode(
            code=code,
            client_id=client.client_id,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.renewals.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.renewals[refresh_token.token]
        return self._issue(client)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)

    def _issue(self, client: OAuthClientInformationFull) -> OAuthToken:
        access, renewal = secrets.token_hex(16), secrets.token_hex(16)
        self.tokens[access] = AccessToken(token=access, client_id=client.client_id, scopes=[])
        self.renewals[renewal] = RefreshToken(token=renewal, client_id=client.client_id, scopes=[])
        return OAuthToken(access_token=access, refresh_token=renewal, expires_in=3_600)


def build(**options: Any) -> MCPServer:
    server = MCPServer("sdk", **options)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> Sum:
        """Add two numbers."""
        return Sum(total=a + b)

    @server.tool()
    def fail() -> str:
        """Fail."""
        msg = "the tank is empty"
        raise ToolError(msg)

    @server.tool()
    async def grow(ctx: Context[Any, Any]) -> str:
        """Offer one tool more."""
        server.add_tool(lambda: "grown", name="grown", description="Came later.")
        await ctx.notify_tools_changed()
        return "more"

    @server.tool()
    async def steps(ctx: Context[Any, Any]) -> str:
        """Report progress."""
        await ctx.report_progress(1, 2, "halfway")
        await ctx.report_progress(2, 2, "there")
        return "arrived"

    @server.tool()
    def picture() -> Image:
        """Show a picture."""
        return Image(data=PIXEL, format="png")

    @server.tool(structured_output=False)
    def mixed() -> list[Any]:
        """Give something of everything."""
        sound = base64.b64encode(b"not really a sound").decode()
        blob = base64.b64encode(b'{"inside": true}').decode()
        return [
            TextContent(type="text", text="first"),
            AudioContent(type="audio", data=sound, mime_type="audio/wav"),
            ResourceLink(type="resource_link", name="far", uri="demo://far"),
            EmbeddedResource(
                type="resource", resource=TextResourceContents(uri="demo://near", text="near text")
            ),
            EmbeddedResource(
                type="resource",
                resource=BlobResourceContents(
                    uri="demo://data", mime_type="application/json", blob=blob
                ),
            ),
        ]

    @server.resource("demo://note", name="note")
    def note() -> str:
        """A note."""
        return "remember the milk"

    @server.resource("demo://page/{number}", name="page")
    def page(number: str) -> str:
        """A page."""
        return f"page {number}"

    @server.prompt()
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Say hello to {name}."

    return server


def serve(kind: str) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    options: dict[str, Any] = {}
    if kind == "oauth":
        options["auth_server_provider"] = OneClient()
        options["auth"] = AuthSettings(
            issuer_url=AnyHttpUrl(address),
            resource_server_url=AnyHttpUrl(f"{address}/mcp"),
            validate_token_resource=False,
            client_registration_options=ClientRegistrationOptions(enabled=True),
        )
    server = build(**options)
    app = server.sse_app() if kind == "sse" else server.streamable_http_app()
    sys.stdout.write(f"{address}/{'sse' if kind == 'sse' else 'mcp'}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        build().run("stdio")
    else:
        serve(sys.argv[1])
