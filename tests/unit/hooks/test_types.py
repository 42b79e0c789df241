"""What a type checker refuses about hooks.

mypy checks this file with ``warn_unused_ignores``: a comment that ignores no error is an error.
"""

from __future__ import annotations

import pytest

from nanobot_core import ContentReady, Decision, Deny, ToolCallProposed, TurnStarted, on
from nanobot_core.errors import PluginRejected
from nanobot_core.hooks.compilation import Registrant
from tests.registrants import check_registrant


class Correct:
    @on.authorize_tool_call
    def check(self, event: ToolCallProposed) -> Decision | None:
        return Deny("no")

    @on.finalize_content(trylast=True)
    async def finish(self, event: ContentReady) -> str | None:
        return None


class AnotherArgument:
    @staticmethod
    @on.before_turn  # type: ignore[arg-type]
    def before_turn(event: TurnStarted, more: int) -> None: ...


class AnotherEvent:
    @staticmethod
    @on.before_turn  # type: ignore[arg-type]
    def before_turn(event: ToolCallProposed) -> None: ...


class AnotherResult:
    @staticmethod
    @on.finalize_content  # type: ignore[arg-type]
    def finalize_content(event: ContentReady) -> int:
        return 1


@pytest.mark.promise(6)
def test_correct_implementations_have_the_types_of_their_functions() -> None:
    decision = Correct().check
    assert check_registrant(Registrant("p", "", Correct())) == (
        "authorize_tool_call",
        "finalize_content",
    )
    assert decision.__name__ == "check"


@pytest.mark.promise(6)
def test_a_wrong_signature_is_an_error_of_types_and_refused() -> None:
    with pytest.raises(PluginRejected, match="has no argument 'more'"):
        check_registrant(Registrant("p", "", AnotherArgument()))


@pytest.mark.promise(6)
def test_a_misspelt_hook_is_an_error_of_types_and_refused() -> None:
    with pytest.raises(AttributeError, match="did you mean 'before_turn'"):

        @on.before_trun  # type: ignore[operator]
        def before(event: TurnStarted) -> None: ...


@pytest.mark.promise(6)
def test_a_misspelt_option_is_an_error_of_types_and_refused() -> None:
    with pytest.raises(TypeError, match="critcal"):

        @on.finalize_content(critcal=True)  # type: ignore[call-overload, untyped-decorator]
        def finish(event: ContentReady) -> str | None: ...
