"""Pages of the settings: all sections, and a form for each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.routing import Route

from nanobot_core import ConfigInvalid, ConfigProblem, ConfigUnreadable
from nanobot_page.access import read_form
from nanobot_page.desk.field import folded
from nanobot_page.desk.form import build_fields, read_changes
from nanobot_page.desk.frame import one

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from nanobot_core import Configuration, SettingsForm
    from nanobot_page.desk.field import Field
    from nanobot_page.desk.frame import Frame

_CHANGED: Final = "The file was changed meanwhile. The page shows it now; repeat your change."


class ConfigurationPages:
    """The pages of one application.

    Args:
        frame: menu, notices and questions.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/desk/settings", self.sections, methods=["GET"]),
            Route("/desk/settings", self.apply, methods=["POST"]),
            Route("/desk/section", self.show, methods=["GET"]),
            Route("/desk/section", self.save, methods=["POST"]),
        ]

    async def sections(self, request: Request) -> Response:
        """Show all sections, or why the file cannot be read."""
        try:
            configuration = await self._frame.gateway.operations.configuration()
        except ConfigUnreadable as error:
            return await self._frame.page(
                request, "settings.html", status=409, configuration=None, failure=str(error)
            )
        return await self._frame.page(
            request, "settings.html", configuration=configuration, failure=""
        )

    async def apply(self, request: Request) -> Response:
        """Use the file as it is, such as after it was edited by hand."""
        sent, operations = await read_form(request), self._frame.gateway.operations
        work = operations.configure({}, one(sent, "revision"))
        return await self._frame.done(request, work, "/desk/settings")

    async def show(self, request: Request) -> Response:
        """Show the form of a section, with what is wrong in the file."""
        configuration = await self._frame.gateway.operations.configuration()
        form = _form(configuration, request.query_params.get("path", ""))
        errors = tuple(
            each
            for each in configuration.problems
            if each.level != "warning" and folded(each.path).startswith(f"{folded(form.path)}.")
        )
        fields, others = _marked(build_fields(form), errors)
        return await self._page(request, configuration, form, fields, others)

    async def save(self, request: Request) -> Response:
        """Write what was changed, or show what is wrong with it; nothing is written then."""
        sent, operations = await read_form(request), self._frame.gateway.operations
        configuration = await operations.configuration()
        form = _form(configuration, one(sent, "path"))
        if one(sent, "revision") != configuration.revision:
            fields = build_fields(form)
            return await self._page(request, configuration, form, fields, _CHANGED, status=409)
        changes, fields = read_changes(build_fields(form), sent)
        if any(field.error for field in fields):
            return await self._page(request, configuration, form, fields, status=422)
        back = f"/desk/section?path={form.path}"
        if not changes:
            return self._frame.lead_back(request, "Nothing was changed.", back)
        try:
            said = await operations.configure(changes, configuration.revision)
        except ConfigInvalid as error:
            fields, others = _marked(fields, error.problems)
            return await self._page(request, configuration, form, fields, others, status=422)
        except ConfigUnreadable as error:
            fields = build_fields(form)
            return await self._page(request, configuration, form, fields, str(error), status=409)
        return self._frame.lead_back(request, f"Saved.\n{said}", back)

    async def _page(
        self,
        request: Request,
        configuration: Configuration,
        form: SettingsForm,
        fields: list[Field],
        failure: str = "",
        *,
        status: int = 200,
    ) -> Response:
        return await self._frame.page(
            request,
            "section.html",
            status=status,
            configuration=configuration,
            form=form,
            fields=fields,
            failure=failure,
            was_sent=request.method == "POST",
        )


def _form(configuration: Configuration, path: str) -> SettingsForm:
    for form in configuration.forms:
        if form.path == path:
            return form
    raise HTTPException(404, "there is no such section; its plugin may be disabled")


def _marked(fields: list[Field], problems: tuple[ConfigProblem, ...]) -> tuple[list[Field], str]:
    """Return the fields with their errors, and the problems that belong to none of them."""
    marked, others = list(fields), []
    for problem in problems:
        at = problem.path.replace("[", ".").rstrip("]")
        place = next(
            (
                place
                for place, field in enumerate(marked)
                if f"{folded(at)}.".startswith(f"{folded(field.path)}.")
            ),
            None,
        )
        if place is None:
            others.append(f"{problem.path}: {problem.expected}")
        else:
            field = marked[place]
            key = problem.path[len(field.path) + 1 :] if field.kind == "map" else ""
            error = f"{key}: {problem.expected}" if key else problem.expected
            marked[place] = replace(field, error=error)
    return marked, "\n".join(others)
