"""`plugins compat` against releases that lack something; the wheels are those of `plugins new`."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanobot_core import __version__
from nanobot_devkit.compat import ParsedCode
from nanobot_devkit.release import Release, ReleaseUnknown, parse_release, select_releases
from nanobot_devkit.scaffold import Kind
from nanobot_devkit.wheel import MAX_FILE_BYTES, PluginCode, WheelUnusable, read_wheel

Run = Callable[..., subprocess.CompletedProcess[str]]
Change = Callable[[dict[str, Any]], object]
BUILD_LIMIT_S = 100.0

CODE = """\
from __future__ import annotations
import nanobot_core
from typing import TYPE_CHECKING
from nanobot_core import Channel, ChannelSpec, on, shorten
from nanobot_core.tools import cast_params
if TYPE_CHECKING:
    from nanobot_core import PluginContext, TurnStarted

@on.before_turn
def before_turn(event):
    turn = event.turn
    return turn.session_key, event.message.text

@on.contribute_channels
def contribute_channels(ctx: PluginContext):
    ctx.contributed(None)
    yield ChannelSpec(name="a", factory="x:y", summary=shorten("a channel", 5))

class Base(Channel):
    async def start(self, inbox):
        ...

class Post(Base):
    async def stop(self):
        ...
    async def send(self, message):
        ...
"""


def current() -> dict[str, Any]:
    """What the installed core offers, to be changed."""
    text = (files("nanobot_core") / "hookspecs" / f"{__version__}.json").read_text("utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def release_with(*changes: Change) -> Release:
    data = current() | {"release": "0.9.0"}
    for change in changes:
        change(data)
    return parse_release(json.dumps(data).encode(), "changed.json")


def findings_of(text: str, *changes: Change) -> list[str]:
    release = release_with(*changes)
    code = PluginCode(name="x", version="1", core=None, sources={"x.py": text})
    return [
        f"{each.place} {each.message}" for each in ParsedCode(code, [release]).code_misfits(release)
    ]


def pack(project: Path, requires: str = "nanobot-core>=0.1", version: str = "0.1.0") -> Path:
    """Return a wheel of a package that `plugins new` wrote, as a build backend makes it."""
    package = project.name.replace("-", "_")
    plugin_id = project.name.removeprefix("nanobot-")
    file = project.parent / f"{package}-{version}-py3-none-any.whl"
    info = f"{package}-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        for each in sorted((project / "src").rglob("*.*")):
            archive.write(each, str(each.relative_to(project / "src")))
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {project.name}\nVersion: {version}\n"
            f"Requires-Dist: {requires}\n",
        )
        entry_points = f"[nanobot]\n{plugin_id} = {package}.plugin\n"
        archive.writestr(f"{info}/entry_points.txt", entry_points)
    return file


def test_code_that_uses_only_what_is_there_fits() -> None:
    assert findings_of(CODE) == []


@pytest.mark.promise(23)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: d["hooks"].pop("before_turn"), "x.py:9 0.9.0 has no hook 'before_turn'"),
        (
            lambda d: d["hooks"]["before_turn"].update(arguments={"started": "TurnStarted"}),
            "x.py:10 hook 'before_turn' has no argument 'event'",
        ),
        (
            lambda d: d["classes"]["TurnInfo"]["fields"].pop("session_key"),
            "x.py:12 TurnInfo of 0.9.0 has no 'session_key'",
        ),
        (
            lambda d: d["classes"]["TurnStarted"]["fields"].pop("turn"),
            "x.py:11 TurnStarted of 0.9.0 has no 'turn'",
        ),
        (
            lambda d: d["classes"]["PluginContext"]["methods"].pop("contributed"),
            "x.py:16 PluginContext of 0.9.0 has no 'contributed'",
        ),
        (
            lambda d: d["classes"]["PluginContext"]["methods"].update(contributed="(hook, *, of)"),
            "x.py:16 PluginContext.contributed requires 'of'",
        ),
        (
            lambda d: d["classes"]["Channel"].update(
                methods=d["classes"]["Channel"]["methods"] | {"pause": "()"},
                required=["pause", "send", "start", "stop"],
            ),
            "x.py:23 class Post lacks 'pause', which 0.9.0 requires",
        ),
        (
            lambda d: d["classes"]["Channel"]["methods"].update(send="(message, receipt)"),
            "x.py:26 Post.send takes 1 arguments instead of 2",
        ),
        (
            lambda d: d["classes"]["ChannelSpec"].update(call="(*, name, factory)"),
            "x.py:17 ChannelSpec takes no 'summary'",
        ),
        (
            lambda d: d["classes"]["ChannelSpec"].update(call="(*, name, factory, summary, kind)"),
            "x.py:17 ChannelSpec requires 'kind'",
        ),
        (
            lambda d: d["functions"].update(shorten="(text)"),
            "x.py:17 shorten takes 1 arguments by position, not 2",
        ),
        (
            lambda d: d["names"].update({"nanobot_core.tools": []}),
            "x.py:5 0.9.0 has no public name nanobot_core.tools.cast_params",
        ),
        (
            lambda d: d["names"].pop("nanobot_core.tools"),
            "x.py:5 nanobot_core.tools is no public module of 0.9.0",
        ),
        (
            lambda d: d.update(
                deprecated=[
                    {
                        "name": "nanobot_core.shorten",
                        "since": "0.8",
                        "removed_in": "1.0",
                        "removed_on": "2030-01-01",
                        "replacement": "nanobot_core.as_label",
                    }
                ]
            ),
            "x.py:4 nanobot_core.shorten is deprecated since 0.8 and goes with 1.0",
        ),
    ],
)
def test_what_a_release_lacks_is_named_with_its_line(change: Change, expected: str) -> None:
    found = findings_of(CODE, change)

    assert expected in found
    # A class of which one member is gone is not reported for its others.
    assert len(found) == 1


def test_a_name_that_only_type_checkers_need_is_a_warning() -> None:
    release = release_with(lambda d: d["names"].update({"nanobot_core": ["on", "Channel"]}))
    text = "if TYPE_CHECKING:\n    from nanobot_core import PluginContext\n"
    code = PluginCode(name="x", version="1", core=None, sources={"x.py": text})

    (found,) = ParsedCode(code, [release]).code_misfits(release)

    assert found.is_warning


def test_an_import_whose_failure_is_handled_fits() -> None:
    text = "try:\n    from nanobot_core import Newer\nexcept ImportError:\n    Newer = None\n"

    assert findings_of(text) == []


def test_an_inner_module_is_not_public() -> None:
    assert findings_of("from nanobot_core.hooks.caller import Hooks") == [
        "x.py:1 nanobot_core.hooks.caller is no public module of 0.9.0"
    ]


def test_variables_of_unknown_class_are_not_judged() -> None:
    text = CODE.replace("turn = event.turn", "event = other(event); turn = event.no_such")

    assert findings_of(text) == []


def test_code_that_does_not_parse_is_named() -> None:
    (found,) = findings_of("def f(:\n")

    assert found.startswith("x.py:1 ")


@pytest.mark.parametrize(
    "test", ["if isinstance(e, RateLimited):", "match e:\n  case RateLimited():"]
)
def test_a_field_is_not_judged_by_a_class_that_the_code_narrows(test: str) -> None:
    body = f"def f(e: NanobotError):\n {test}\n   return e.retry_after_s\n"

    assert findings_of(f"from nanobot_core import NanobotError, RateLimited\n{body}") == []


def test_wheels_of_all_kinds_fit_the_installed_release(
    write: Callable[[str, Kind], Path],
) -> None:
    kinds: tuple[Kind, ...] = ("tool", "channel", "provider", "memory", "hook", "service", "store")
    release = parse_release(json.dumps(current()).encode(), "current.json")

    for kind in kinds:
        code = read_wheel(pack(write(f"sample-{kind}", kind)))
        assert ParsedCode(code, [release]).misfits(release) == [], kind


def test_the_command_names_each_release_and_exits_1_if_one_does_not_fit(
    nanobot: Run, write: Callable[[str, Kind], Path], tmp_path: Path
) -> None:
    wheel = pack(write("hooked", "hook"), f"nanobot-core=={__version__}")
    data = current() | {"release": "0.9.0"}
    data["hooks"].pop("finalize_content")
    (tmp_path / "next.json").write_text(json.dumps(data), "utf-8")
    words = ("plugins", "compat", str(wheel), "--against", __version__, "--against")

    both = nanobot(*words, str(tmp_path / "next.json"))
    as_json = nanobot(*words, str(tmp_path / "next.json"), "--json")
    alone = nanobot("plugins", "compat", str(wheel))

    assert both.returncode == as_json.returncode == 1
    assert f"nanobot-hooked 0.1.0 fits nanobot-core {__version__}\n" in both.stdout
    assert "nanobot-hooked 0.1.0 does not fit nanobot-core 0.9.0\n" in both.stdout
    assert f"requires nanobot-core=={__version__}, so 0.9.0 does not load it" in both.stdout
    releases = json.loads(as_json.stdout)["releases"]
    assert [(each["release"], each["fits"]) for each in releases] == [
        (__version__, True),
        ("0.9.0", False),
    ]
    assert {each["rule"] for each in releases[1]["findings"]} == {"requirement", "hook"}
    assert alone.returncode == 0, alone.stdout


@pytest.mark.promise(23)
@pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed")
@pytest.mark.timeout(BUILD_LIMIT_S)
def test_a_built_wheel_is_read_without_its_code_being_run(
    nanobot: Run, write: Callable[[str, Kind], Path], tmp_path: Path
) -> None:
    project = write("built", "tool")
    entry = project / "src/nanobot_built/plugin.py"
    entry.write_text(entry.read_text("utf-8") + "\nraise SystemExit('it ran')\n", "utf-8")
    words = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run(
        [sys.executable, "-m", "pip", *words, "-w", str(tmp_path / "dist"), str(project)],
        check=True,
        timeout=BUILD_LIMIT_S,
    )

    done = nanobot("plugins", "compat", *map(str, (tmp_path / "dist").iterdir()))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "it ran" not in done.stdout + done.stderr


def test_a_generation_that_the_release_does_not_have_is_named(
    write: Callable[[str, Kind], Path],
) -> None:
    project = write("older", "hook")
    release = release_with(lambda d: d["hooks"]["finalize_content"].update(generation=2))

    found = ParsedCode(read_wheel(pack(project)), [release]).misfits(release)

    assert [each.message for each in found] == [
        "hook 'finalize_content' is written for its generation 1, 0.9.0 has generation 2"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "from nanobot_core import *",
        "class A(A): ...",
        "from nanobot_core import Tool\nclass A(B, Tool): ...\nclass B(A): ...",
        "from . import x\nx.y.z",
        "from nanobot_core import PluginContext\ndef f(ctx: 'PluginContext['): ctx.no_such",
    ],
)
def test_unusual_code_is_no_reason_for_a_finding(text: str) -> None:
    assert findings_of(text) == []


@given(place=st.integers(0, len(CODE)), text=st.text(max_size=30), cut=st.integers(0, 200))
def test_damaged_code_is_compared_or_named(place: int, text: str, cut: int) -> None:
    damaged = CODE[:place] + text + CODE[place + cut :]

    assert all(each.startswith("x.py:") for each in findings_of(damaged))


def bare_wheel(file: Path, **texts: str) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in texts.items():
            archive.writestr(name.replace("__", "/").replace("info", "x-1.dist-info"), text)
    return file


def test_files_that_are_no_wheels_of_plugins_are_refused(tmp_path: Path) -> None:
    metadata = "Name: x\nVersion: 1\n"
    (tmp_path / "text.whl").write_text("no zip", "utf-8")
    whole = bare_wheel(tmp_path / "whole.whl", info__METADATA=metadata, a="b" * 5_000)
    (tmp_path / "cut.whl").write_bytes(whole.read_bytes()[:2_000])
    cases = {
        tmp_path / "absent.whl": "there is no file",
        tmp_path / "text.whl": "not a readable wheel",
        tmp_path / "cut.whl": "not a readable wheel",
        bare_wheel(tmp_path / "empty.whl"): "has no METADATA",
        whole: "holds no plugin",
    }
    for file, expected in cases.items():
        with pytest.raises(WheelUnusable, match=expected):
            read_wheel(file)


def test_a_file_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "bomb.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.py", b"\n" * (MAX_FILE_BYTES + 1))

    with pytest.raises(WheelUnusable, match="too large"):
        read_wheel(file)


def test_releases_are_selected_by_version_range_file_and_wheel(tmp_path: Path) -> None:
    data = current() | {"release": "99.4.0"}
    wheel = tmp_path / "nanobot_core-99.4.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nanobot_core/hookspecs/99.4.0.json", json.dumps(data))
        former = json.dumps(data | {"release": "99.3.0"})
        archive.writestr("nanobot_core/hookspecs/99.3.0.json", former)

    def versions(*against: str) -> list[str]:
        return [each.release for each in select_releases(against)]

    assert versions() == versions(f"{__version__}..") == [__version__]
    assert versions("0.1..0.1") == ["0.1.0"]
    assert versions("..") == versions("0.1..") == ["0.1.0", *versions("0.2..")]
    assert versions(str(wheel), __version__) == [__version__, "99.4.0"]
    with pytest.raises(ReleaseUnknown, match=rf"known are 0\.1\.0,.* {__version__}\."):
        versions("97.0..98.0")
    with pytest.raises(ReleaseUnknown, match="is no version"):
        versions("newest")
    (tmp_path / "x.json").write_text("{}", "utf-8")
    with pytest.raises(ReleaseUnknown, match="does not describe a release"):
        versions(str(tmp_path / "x.json"))
