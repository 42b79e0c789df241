"""A plugin in one file for tests of the desk: settings of every kind, a panel, a channel, a page.

Its channel `pigeon` takes what its panel sends. What is sent while the file ``fog`` exists starts a
chat in the fog, whose replies are lost as long as it lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal
from uuid import uuid4

from pydantic import Field, SecretStr

from nanobot_core import (
    AsgiApp,
    Channel,
    ChannelError,
    ChannelSettings,
    ChannelSpec,
    DeliveryError,
    InboundMessage,
    Inbox,
    LoginPrompt,
    Mount,
    OutboundMessage,
    Panel,
    PanelAction,
    PanelBars,
    PanelView,
    PluginContext,
    PluginSettings,
    SettingsSection,
    on,
)

PAGE = b'<!doctype html><link rel="icon" href="/garden/icon"><h1>Roses</h1>'
IN_FOG = "fog-"
BARS = (("Mon", 40.0, "40 kg"), ("Tue", 10.0, "10 kg"), ("<b>Wed", 0.0, "none"))


class House(PluginSettings):
    """Section ``house``."""

    name: str = Field(default="cabin", description="What it is called.")
    motto: str | None = None
    floors: int = Field(default=2, ge=1)
    warmth: float = 20.5
    heated: bool = False
    roof: Literal["tin", "straw", "slate"] = "tin"
    rooms: list[str] = Field(default=["kitchen"])
    alarm: SecretStr = SecretStr("")
    spare: SecretStr = SecretStr("")
    plan: list[list[int]] = Field(default=[])
    doors: dict[str, str | int | bool] = Field(default={})
    keys: dict[str, SecretStr] = Field(default={})
    windows: dict[str, int] = Field(default={"north": 2, "south": 4})
    guests: dict[str, Literal["friend", "family"]] = Field(default={})
    paint: dict[str, str] = Field(default={})


class PigeonSettings(ChannelSettings):
    """Section ``channels.pigeon``."""


class Loft:
    """What the panel and the channel share."""

    def __init__(self, ctx: PluginContext) -> None:
        self.inbox: Inbox | None = None
        self.fog = ctx.workspace / "fog"


class PigeonChannel(Channel):
    """Replies fly off, unless there is fog."""

    name = "pigeon"

    def __init__(self, ctx: PluginContext) -> None:
        self._loft = ctx.shared(Loft)

    async def start(self, inbox: Inbox) -> None:
        self._loft.inbox = inbox
        inbox.alive()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self._loft.inbox = None

    async def login(self, prompt: LoginPrompt | None = None) -> str:
        if prompt is None:
            return "a pigeon"
        await prompt.show("https://pigeons.example/link", code="COO-7", limit_s=300)
        await prompt.note("Which pigeon <b>is</b> it?")
        name = await prompt.pasted()
        if name != "Charlie":
            raise ChannelError(f"there is no pigeon '{name}'")
        return f"the pigeon {name}"

    async def send(self, message: OutboundMessage) -> None:
        # Replies to earlier messages may be late.
        if message.chat_id.startswith(IN_FOG) and self._loft.fog.exists():
            raise DeliveryError("pigeon", "lost in the <b>fog</b>", retryable=False)


def make_channel(ctx: PluginContext) -> Channel:
    return PigeonChannel(ctx)


def make_page(ctx: PluginContext) -> AsgiApp:
    async def page(
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": PAGE})

    return page


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    yield SettingsSection("house", f"{__name__}:House")
    yield SettingsSection("channels.pigeon", f"{__name__}:PigeonSettings")


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    yield ChannelSpec(name="pigeon", factory=f"{__name__}:make_channel")


@on.contribute_routes
def contribute_routes(ctx: PluginContext) -> Iterable[Mount]:
    yield Mount(path="/garden", app=f"{__name__}:make_page", access="open", title="Garden <b>")
    yield Mount(path="/shed", app=f"{__name__}:make_page", access="open")


@on.contribute_panels
def contribute_panels(ctx: PluginContext) -> Iterable[Panel]:
    async def show(view: str) -> PanelView:
        actions = tuple(
            PanelAction(name="write", label=f"Write {text}", subject=text)
            for text in ("hello", "note", "job")
        )
        return PanelView(parts=(PanelBars(title="Harvest", bars=BARS),), actions=actions)

    async def write(name: str, text: str) -> str:
        loft = ctx.shared(Loft)
        assert loft.inbox is not None
        chat_id = uuid4().hex[:6]
        if loft.fog.exists():
            chat_id = f"{IN_FOG}{chat_id}"
        await loft.inbox.publish(
            InboundMessage(channel="pigeon", sender_id="7", chat_id=chat_id, content=text)
        )
        return f"Sent: {text}."

    yield Panel(id="loft", title="Loft", show=show, act=write)
