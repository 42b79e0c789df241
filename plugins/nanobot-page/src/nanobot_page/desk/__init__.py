"""The pages on which the owner runs the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_page.desk.channels import ChannelPages
from nanobot_page.desk.configuration import ConfigurationPages
from nanobot_page.desk.frame import Frame
from nanobot_page.desk.installing import InstallPages
from nanobot_page.desk.operating import OperatingPages
from nanobot_page.desk.panels import PanelPages

if TYPE_CHECKING:
    from starlette.routing import Route

    from nanobot_core import PluginContext


def desk_routes(ctx: PluginContext) -> list[Route]:
    """Return the routes below ``/desk``. They are for the owner; `Site` checks that."""
    frame = Frame(ctx)
    return [
        *OperatingPages(frame).routes(),
        *InstallPages(frame, ctx).routes(),
        *ChannelPages(frame, ctx).routes(),
        *ConfigurationPages(frame).routes(),
        *PanelPages(frame).routes(),
    ]
