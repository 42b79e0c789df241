"""Pages on which the owner installs a plugin: its name, the plan, the progress and the result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Route

from nanobot_core import NanobotError
from nanobot_page.access import read_form, require_owner
from nanobot_page.desk.frame import one
from nanobot_page.desk.work import Work, parts_answer
from nanobot_page.pages import token_field

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import datetime
    from typing import Any

    from starlette.requests import Request
    from starlette.responses import Response

    from nanobot_core import InstallPlan, Operations, PluginContext, PluginEntry
    from nanobot_page.desk.frame import Frame

Phase: TypeAlias = Literal["idle", "planning", "planned", "installing", "installed", "failed"]
MAX_REQUIREMENT_CHARS: Final = 200
PATH: Final = "/desk/install"
_PARTS: Final = {"install-says": "install_says.html", "install-state": "install_state.html"}
_BUSY: Final = "Another installation is in progress; wait for it to end, or cancel it."
_CHANGED: Final = (
    "What would be installed has changed since you agreed, so that nothing was installed. "
    "Check it again."
)
_CANCELLED: Final = (
    "It was cancelled. If it had begun to change anything, that is undone, at the latest by the "
    "next installation."
)
_LOST: Final = "It ended without a result; the log says why."


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallState:
    """What all pages of all browsers show.

    Attributes:
        phase: ``planned`` waits for the owner; ``failed`` has the reason in `note`.
        requirement: what the owner named.
        since: when `phase` began, aware; ``None`` while nothing was asked for.
        plan: from ``planned`` on.
        note: what to say besides.
        todo: what the owner still has to do.
    """

    phase: Phase = "idle"
    requirement: str = ""
    since: datetime | None = None
    plan: InstallPlan | None = None
    note: str = ""
    todo: tuple[str, ...] = ()

    @property
    def is_busy(self) -> bool:
        """Whether it will change by itself."""
        return self.phase in ("planning", "installing")


class Installation:
    """The installation of this gateway, one at a time; get it with ``ctx.shared(Installation)``.

    It belongs to the gateway, not to a page: pages come and go while it runs.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._clock = ctx.clock
        self._work = Work(ctx, "installation")
        self.state = InstallState()

    async def plan(self, operations: Operations, requirement: str) -> bool:
        """Begin to find out what would be installed; False if something is under way."""
        begun = InstallState(phase="planning", requirement=requirement)
        return await self._begin(begun, self._plan(operations, requirement))

    async def install(self, operations: Operations, digest: str) -> bool:
        """Begin to install the plan that the owner has seen; False if it is not this one."""
        plan = self.state.plan
        if self.state.phase != "planned" or plan is None or plan.digest != digest:
            return False
        begun = replace(self.state, phase="installing", note="")
        return await self._begin(begun, self._install(operations, plan))

    def cancel(self) -> None:
        """Cancel what is under way, or forget a plan or a result."""
        if self._work.is_running:
            self._work.cancel()
        else:
            self.state = InstallState()

    async def _begin(self, state: InstallState, work: Coroutine[Any, Any, None]) -> bool:
        if self._work.is_running:
            work.close()
            return False
        self._become(state)
        await self._work.start(self._guarded(work))
        return True

    def _become(self, state: InstallState) -> None:
        self.state = replace(state, since=self._clock.now())

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work`, after which no page may wait for ever."""
        reason = _LOST
        try:
            await work
        except NanobotError as error:
            reason = str(error)
        except asyncio.CancelledError:
            reason = _CANCELLED
            raise
        finally:
            if self.state.is_busy:
                self._become(replace(self.state, phase="failed", note=reason))

    async def _plan(self, operations: Operations, requirement: str) -> None:
        plan = await operations.plan_install(requirement)
        self._become(replace(self.state, phase="planned", plan=plan))

    async def _install(self, operations: Operations, plan: InstallPlan) -> None:
        try:
            todo = tuple(await operations.install(plan))
        except NanobotError:
            # The error does not say whether the plan has changed, so that it is made again.
            now = await operations.plan_install(plan.requirement)
            if now.digest == plan.digest:
                raise
            self._become(replace(self.state, phase="planned", plan=now, note=_CHANGED))
        else:
            self._become(replace(self.state, phase="installed", todo=todo))


class InstallPages:
    """The pages of one application.

    Args:
        frame: menu, notices and questions.
        ctx: the context of the plugin.
    """

    def __init__(self, frame: Frame, ctx: PluginContext) -> None:
        self._frame = frame
        self._installation = ctx.shared(Installation)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(PATH, self.show, methods=["GET"]),
            Route(PATH, self.act, methods=["POST"]),
            Route(f"{PATH}/state", self.parts, methods=["GET"]),
        ]

    async def show(self, request: Request) -> Response:
        """Show what is under way, or ask for a name."""
        values = await self._values(self._installation.state)
        return await self._frame.page(request, "install.html", status=200, **values)

    async def parts(self, request: Request) -> Response:
        """Return the parts of the page that change."""
        state, token = self._installation.state, token_field(require_owner(request))
        values = await self._values(state)
        return parts_answer(request, _PARTS, is_busy=state.is_busy, token_field=token, **values)

    async def act(self, request: Request) -> Response:
        """Make a plan, carry it out, or cancel."""
        form, operations = await read_form(request), self._frame.gateway.operations
        do, installation = one(form, "do"), self._installation
        if do == "cancel":
            installation.cancel()
        elif do == "install":
            if not await installation.install(operations, one(form, "digest")):
                changed = _BUSY if installation.state.is_busy else _CHANGED
                return self._frame.lead_back(request, changed, PATH, failed=True)
        elif do == "plan":
            requirement = one(form, "requirement").strip()
            if not requirement or len(requirement) > MAX_REQUIREMENT_CHARS:
                wrong = f"Expected a name of 1 to {MAX_REQUIREMENT_CHARS} characters."
                return self._frame.lead_back(request, wrong, PATH, failed=True)
            if not await installation.plan(operations, requirement):
                return self._frame.lead_back(request, _BUSY, PATH, failed=True)
        else:
            raise HTTPException(400, "expected plan, install or cancel")
        return RedirectResponse(PATH, 303)

    async def _values(self, state: InstallState) -> dict[str, object]:
        ids = {each.id for each in state.plan.plugins} if state.plan else set[str]()
        values: dict[str, object] = {"state": state, "ends_page": bool(ids & {"page", "http"})}
        if state.phase != "installed":
            return values
        operations = self._frame.gateway.operations
        entries: list[PluginEntry] = [each for each in operations.plugins() if each.id in ids]
        try:
            forms = (await operations.configuration()).forms
        except NanobotError:  # the page of the settings says what is wrong with the file
            forms = ()
        sections = [form.path for form in forms if form.owner in ids]
        return {**values, "entries": entries, "sections": sections}
