"""Settings: the servers, in the form that other MCP clients use, and limits."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)

from nanobot_core import PluginSettings

Transport: TypeAlias = Literal["stdio", "sse", "streamableHttp"]

_SPELLINGS = {
    "stdio": "stdio",
    "sse": "sse",
    "http": "streamableHttp",
    "streamablehttp": "streamableHttp",
}
_NEAR = 0.75
"""Similarity (difflib) from which an unknown key counts as a misspelling of a known one."""


def _none_if_empty(value: object) -> object:
    """Read empty text as no value, because other programs write it for missing values."""
    return None if isinstance(value, str) and not value.strip() else value


OptionalText: TypeAlias = Annotated[str | None, BeforeValidator(_none_if_empty)]


def _known_type(value: object) -> object:
    """Read the spellings of other clients (``streamable-http``, ``http``)."""
    value = _none_if_empty(value)
    if not isinstance(value, str):
        return value
    return _SPELLINGS.get(value.lower().replace("-", "").replace("_", ""), value)


class OAuthSettings(PluginSettings):
    """How to log in to a remote server. All values are optional.

    Attributes:
        client_id: client that the owner registered; by default, the login registers one.
        client_secret: secret of that client, if it has one.
        scope: scopes to request; by default, those that the server names.
        redirect_port: port on 127.0.0.1 for the browser's redirect; 0 selects a free port.
    """

    client_id: str | None = None
    client_secret: SecretStr | None = None
    scope: str | None = None
    redirect_port: int = Field(default=0, ge=0, le=65_535)


class ServerSettings(PluginSettings):
    """One server. Keys of other clients that have no effect here are reported, not refused.

    Attributes:
        command: program to start, for a server on standard input and output.
        args: arguments of the program.
        env: environment variables in addition to HOME, LANG, PATH and TERM.
        cwd: folder in which the program runs; by default, the workspace.
        url: address of a remote server.
        headers: sent with each request to that address.
        type: transport; by default, derived from `command` and `url`.
        tool_timeout_s: time limit of a call, in seconds.
        connect_timeout_s: time limit for connecting and listing the tools, in seconds.
        enabled_tools: names or globs: the server's names, or those that the model sees.
        disabled: the server is not used.
        oauth: how to log in.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="allow",
        json_schema_extra={
            "oneOf": [
                {"required": [key], "properties": {key: {"type": "string", "minLength": 1}}}
                for key in ("command", "url")
            ]
        },
    )

    command: OptionalText = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default={}, repr=False)
    cwd: OptionalText = None
    url: OptionalText = None
    headers: dict[str, str] = Field(default={}, repr=False)
    type: Annotated[
        Transport | None,
        BeforeValidator(_known_type),
        WithJsonSchema({"type": ["string", "null"]}),  # other clients spell it differently
    ] = None
    tool_timeout_s: PositiveFloat = Field(
        default=30,
        validation_alias=AliasChoices(
            "tool_timeout_s", "toolTimeoutS", "tool_timeout", "toolTimeout"
        ),
    )
    connect_timeout_s: PositiveFloat = Field(
        default=60,
        validation_alias=AliasChoices(
            "connect_timeout_s", "connectTimeoutS", "connect_timeout", "connectTimeout"
        ),
    )
    enabled_tools: tuple[str, ...] = ("*",)
    disabled: bool = False
    oauth: OAuthSettings | None = None
    _problem: str = PrivateAttr("")

    @field_validator("url")
    @classmethod
    def _is_web_address(cls, value: str | None) -> str | None:
        if value is not None and not value.lower().startswith(("http://", "https://")):
            msg = "a URL that begins with http:// or https://"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _is_one_server(self) -> ServerSettings:
        known = [*type(self).model_fields, "tool_timeout", "connect_timeout"]
        for key in self.unknown_keys:
            near = get_close_matches(_fold(key), [_fold(name) for name in known], 1, _NEAR)
            if near:
                name = next(name for name in known if _fold(name) == near[0])
                msg = f"known keys only; '{key}' is unknown, did you mean '{name}'?"
                raise ValueError(msg)
        if (self.command is None) == (self.url is None):
            msg = "either 'command' (a program to start) or 'url' (a remote server)"
            raise ValueError(msg)
        if self.type is not None and (self.type == "stdio") != (self.command is not None):
            msg = f"'{'command' if self.type == 'stdio' else 'url'}' beside type '{self.type}'"
            raise ValueError(msg)
        return self

    @classmethod
    def unusable(cls, error: ValidationError) -> ServerSettings:
        """Return settings of a server that cannot be used because of `error`."""
        server = ServerSettings.model_construct()
        server._problem = "; ".join(  # noqa: SLF001  # its own class
            ": ".join((*map(str, found["loc"]), found["msg"].replace("Value error,", "expected")))
            for found in error.errors(include_input=False, include_url=False)
        )
        return server

    @property
    def problem(self) -> str:
        """Why the settings cannot be used, with the remedy; empty if they can."""
        return self._problem

    @property
    def transport(self) -> Transport:
        """The configured transport, or the one derived from `command` and `url`."""
        if self.type is not None:
            return self.type
        if self.url is None:
            return "stdio"
        path = self.url.partition("?")[0].partition("#")[0]
        return "sse" if path.rstrip("/").endswith("/sse") else "streamableHttp"

    @property
    def unknown_keys(self) -> tuple[str, ...]:
        """Keys that have no effect."""
        return tuple(key for key in self.model_extra or () if key != "enabled")

    @property
    def is_enabled(self) -> bool:
        """Whether the server is used; ``enabled: false`` of other clients counts too."""
        return (
            not self.disabled
            and not self.problem
            and (self.model_extra or {}).get("enabled") is not False
        )


def _or_unusable(
    value: object, validate: ValidatorFunctionWrapHandler, info: ValidationInfo
) -> ServerSettings:
    """Return the settings of one server; an error in them must not disable the other servers.

    ``nanobot config check`` reports the error.
    """
    try:
        server: ServerSettings = validate(value)
    except ValidationError as error:
        if info.context and info.context["finds_all"]:
            raise
        return ServerSettings.unusable(error)
    return server


class _Servers(PluginSettings):
    """Name to server."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[ServerSettings, WrapValidator(_or_unusable)]]

    @property
    def servers(self) -> dict[str, ServerSettings]:
        """All servers by name, including those that are disabled or invalid."""
        return dict(self.__pydantic_extra__ or {})


class OwnServers(_Servers):
    """Section ``tools.mcp_servers``."""


class CopiedServers(_Servers):
    """Section ``mcpServers`` at the top level, as Claude Desktop and Cursor write it."""


class McpSettings(PluginSettings):
    """Section ``tools.mcp``: limits for all servers.

    Attributes:
        startup_grace_s: seconds that the first turn waits for servers whose tools are not known
            from an earlier connection.
        max_message_bytes: size limit of a message from a server.
        max_image_bytes: size limit of an image for the model; larger ones are saved as files.
        log_bytes: size at which the log of a server's standard error is rotated.
    """

    startup_grace_s: float = Field(default=0, ge=0, le=20)
    max_message_bytes: int = Field(default=16_000_000, ge=10_000, le=1_000_000_000)
    max_image_bytes: int = Field(default=5_000_000, ge=1_000)
    log_bytes: int = Field(default=1_000_000, ge=1_000)


def _fold(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def fingerprint(server: ServerSettings) -> dict[str, Any]:
    """Return the values that identify a server, without those that may be secret."""
    return {
        "transport": server.transport,
        "command": server.command,
        "args": list(server.args),
        "cwd": server.cwd,
        "url": server.url,
        "env": sorted(server.env),
        "headers": sorted(server.headers),
    }
