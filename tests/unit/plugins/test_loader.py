"""Each failure to import a plugin's code is distinguished and contained."""

from __future__ import annotations

import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from nanobot_core import PluginLoadFailed
from nanobot_core.plugins.index import InstalledPlugin, local_plugins
from nanobot_core.plugins.loader import load_entry, load_object
from nanobot_core.tasks import call_within
from tests.distributions import write_plugin

OBJECT = "acme_code.plugin"


def plugin(target: str = OBJECT) -> InstalledPlugin:
    return InstalledPlugin(id="code", target=target, distribution="acme-code", version="1.0")


FAULTS = [
    (
        "import no_such_thing",
        OBJECT,
        "module 'no_such_thing' is not installed",
        "install the package",
    ),
    (
        "import no_such_thing.inner",
        OBJECT,
        "module 'no_such_thing' is not installed",
        "install the package",
    ),
    ("import acme_code.inner", OBJECT, "module 'acme_code.inner' does not exist", "reinstall"),
    ("", "acme_gone.plugin", "module 'acme_gone' does not exist", "reinstall"),
    ("def broken(:", OBJECT, "syntax error in ", "fix the file"),
    ("", f"{OBJECT}:Missing", f"module '{OBJECT}' has no 'Missing'", "fix its entry point"),
    ("import sys; sys.exit(3)", OBJECT, f"importing '{OBJECT}' called sys.exit(3)", "remove"),
    ("raise KeyboardInterrupt", OBJECT, "raised KeyboardInterrupt", "plugin.py:1"),
    ("1 / 0", OBJECT, "raised ZeroDivisionError: division by zero", "plugin.py:1"),
    ("x = None.y", OBJECT, "raised AttributeError", "plugin.py:1"),
    (
        "class Plugin:\n    def __init__(self):\n        raise ValueError('no')",
        f"{OBJECT}:Plugin",
        f"creating {OBJECT}:Plugin raised ValueError: no",
        "report it to the author of acme-code",
    ),
    (
        "class Plugin:\n    def __init__(self):\n        raise SystemExit",
        f"{OBJECT}:Plugin",
        "raised SystemExit",
        "report it",
    ),
    (
        "class Plugin:\n    def __init__(self, ctx): ...",
        f"{OBJECT}:Plugin",
        "raised TypeError",
        "report it",
    ),
]


@pytest.mark.promise(13)
@pytest.mark.parametrize(("code", "target", "reason", "remedy"), FAULTS)
def test_each_failure_is_told_apart(
    site: Path, code: str, target: str, reason: str, remedy: str
) -> None:
    write_plugin(site, "code", code=code)

    with pytest.raises(PluginLoadFailed) as failed:
        load_entry(plugin(target))

    assert failed.value.plugin == "code"
    assert reason in failed.value.reason
    assert remedy in failed.value.remedy


def test_a_syntax_error_is_told_with_file_and_line(site: Path) -> None:
    package = write_plugin(site, "code", code="fine = 1\ndef broken(:\n")

    with pytest.raises(PluginLoadFailed, match=f"{package}/plugin.py:2"):
        load_entry(plugin())


def test_an_entry_point_names_a_module_or_a_class_of_which_an_instance_is_made(site: Path) -> None:
    write_plugin(site, "code", code="class Plugin: ...\n")

    module = load_entry(plugin())
    instance = load_entry(plugin(f"{OBJECT}:Plugin"))

    assert module is sys.modules[OBJECT]
    assert type(instance).__name__ == "Plugin"
    assert load_entry(plugin(f"{OBJECT}:Plugin")) is not instance


def test_a_dotted_name_may_go_into_a_class(site: Path) -> None:
    write_plugin(site, "code", code="class Plugin:\n    class Inner:\n        value = 5\n")

    assert load_object("code", f"{OBJECT}:Plugin.Inner.value") == 5


def test_a_local_file_is_a_plugin_whose_id_is_its_stem(tmp_path: Path, site: Path) -> None:
    file = tmp_path / "my_dice.py"
    file.write_text("class Die: ...\nname = f'{__name__}:Die'\n")

    (found,) = local_plugins(["my_dice.py"], tmp_path)
    module = load_entry(found)

    assert (found.id, found.label, found.problem) == ("my_dice", "my_dice", "")
    name: str = vars(module)["name"]
    assert load_object("my_dice", name) is vars(module)["Die"]
    assert load_entry(found) is module


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("absent.py", "does not exist"),
        ("notes.txt", "is not a Python file"),
        ("My Tool.py", "its id 'My Tool' is not usable"),
    ],
)
def test_a_local_file_that_cannot_be_one_says_why(tmp_path: Path, name: str, problem: str) -> None:
    if name != "absent.py":
        (tmp_path / name).write_text("")

    assert problem in local_plugins([str(tmp_path / name)], tmp_path)[0].problem


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_thing", "module 'no_such_thing' is not installed"),
        ("def broken(:", "syntax error in "),
        ("import sys; sys.exit()", "called sys.exit(None)"),
    ],
)
def test_a_broken_local_file_is_told_and_leaves_no_module(
    tmp_path: Path, site: Path, code: str, reason: str
) -> None:
    (tmp_path / "mine.py").write_text(code)

    with pytest.raises(PluginLoadFailed) as failed:
        load_entry(local_plugins(["mine.py"], tmp_path)[0])

    assert reason in failed.value.reason
    assert "nanobot_local_mine" not in sys.modules


def test_code_that_never_returns_is_left_behind() -> None:
    release = threading.Event()

    def wait() -> bool:
        return release.wait(5)

    with pytest.raises(PluginLoadFailed, match=r"waiting did not end within 0\.01 s; disable it"):
        call_within(0.01, "slow", "waiting", wait)
    assert [thread.daemon for thread in threading.enumerate() if "slow" in thread.name] == [True]

    release.set()


def test_what_code_raises_is_raised_and_what_would_end_the_process_is_not() -> None:
    def fail(error: BaseException) -> None:
        raise error

    assert call_within(5, "x", "adding", lambda: 1 + 1) == 2
    with pytest.raises(ValueError, match="mine"):
        call_within(5, "x", "failing", lambda: fail(ValueError("mine")))
    for error in (SystemExit(1), KeyboardInterrupt(), GeneratorExit()):
        with pytest.raises(PluginLoadFailed, match=type(error).__name__):
            call_within(5, "x", "leaving", partial(fail, error))
