"""The profile for macOS, as text: no test here runs on such a machine."""

from __future__ import annotations

from pathlib import Path

from nanobot_shell.seatbelt import PROGRAM, Seatbelt, render_profile
from nanobot_shell.view import RECORDS, View

WORKSPACE = Path("/Users/a/.nanobot/workspace")


def make_view(*, has_network: bool = True) -> View:
    return View(
        home=Path("/Users/a"),
        hidden=(Path("/Users/a/.nanobot"), WORKSPACE / "key"),
        readable=(Path('/Users/a/my "bin"'),),
        has_network=has_network,
        workspace=WORKSPACE,
        records=RECORDS,
        temporary=Path("/private/tmp/t"),
    )


def test_the_workspace_is_opened_after_what_holds_it_was_closed() -> None:
    profile = render_profile(make_view())

    closed = profile.index('(subpath "/Users/a/.nanobot")')
    opened = profile.index(f'(allow file-read* file-write*\n  (subpath "{WORKSPACE}")')
    key = profile.index(f'(deny file-read* file-write*\n  (subpath "{WORKSPACE}/key"))')
    assert closed < opened < key


def test_records_and_commands_of_git_are_closed_last_for_writing() -> None:
    profile = render_profile(make_view())

    opened = profile.index("(allow file-read* file-write*")
    for name in (*RECORDS, ".git/config", ".git/hooks"):
        assert profile.index(f'(subpath "{WORKSPACE}/{name}")') > opened
    assert f'(deny file-write-unlink (literal "{WORKSPACE}/.git"))' in profile


def test_everything_is_refused_that_is_not_named() -> None:
    profile = render_profile(View(Path("/Users/a"), has_network=False))

    assert "(deny default)" in profile
    assert "network" not in profile
    assert "workspace" not in profile


def test_network_is_allowed_where_it_is_shared() -> None:
    assert "(allow network* system-socket)" in render_profile(make_view())


def test_names_cannot_end_the_text_of_a_path() -> None:
    assert r'(subpath "/Users/a/my \"bin\"")' in render_profile(make_view())


def test_parentheses_are_balanced() -> None:
    profile = render_profile(make_view())

    assert profile.count("(") == profile.count(")")


def test_the_profile_is_handed_to_the_program_of_the_system() -> None:
    argv = Seatbelt().wrap(["bash", "-c", "ls"], make_view(), WORKSPACE)

    assert argv == [PROGRAM, "-p", render_profile(make_view()), "bash", "-c", "ls"]
