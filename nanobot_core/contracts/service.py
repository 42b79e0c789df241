"""Services, jobs, routes and skills: what a plugin runs or mounts in the gateway."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal


class Service(ABC):
    """Something that runs for as long as the gateway."""

    @abstractmethod
    async def run(self) -> None:
        """Work until cancelled. Returning or raising makes the supervisor start it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """A service as a plugin contributes it.

    Attributes:
        name: unique name.
        factory: ``package.module:name`` of a callable ``(ctx)`` that returns a `Service`.
        needs: names of services that must run before it starts and until it has stopped.
    """

    name: str
    factory: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemJob:
    """Work on a schedule that users see and cannot remove.

    Attributes:
        id: unique id.
        schedule: five-field cron expression, or ``every <seconds>``.
        run: ``package.module:name`` of an async callable ``(ctx)``.
    """

    id: str
    schedule: str
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """An ASGI application on the gateway's HTTP server.

    Attributes:
        path: prefix, beginning with ``/``.
        app: ``package.module:name`` of a callable ``(ctx)`` that returns an ASGI application.
        access: who may call it.
    """

    path: str
    app: str
    access: Literal["open", "token"] = "token"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillSource:
    """A folder of skills inside the plugin's package.

    Attributes:
        package: package that holds the folder.
        folder: path of the folder inside the package.
    """

    package: str
    folder: str = "skills"
