"""What an owner does with a running gateway, for plugins such as a web page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from nanobot_core import (
    MASK,
    ConfigInvalid,
    ConfigUnreadable,
    NanobotError,
    Operations,
    SettingsForm,
)
from tests.gateways import GatewayKeeper, Platform, running, write_config

pytestmark = pytest.mark.anyio

SECRET = "sk-planted-4711"
PLUGIN = """\
from pydantic import SecretStr
from nanobot_core import PluginSettings, SettingsSection, on


class KettleSettings(PluginSettings):
    heat: int = 80
    key: SecretStr = SecretStr("")
    rooms: list[str] = []


@on.contribute_settings
def contribute_settings():
    return [SettingsSection("kettle", f"{__name__}:KettleSettings")]


@on.before_turn
def ready(event): ...
"""
CONFIG = f"""\
# the first comment
plugins:
  policy: listed
  local: [kettle.py]
gateway:
  port: 0
kettle:
  heat: 90  # hot
  key: {SECRET}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "kettle.py").write_text(PLUGIN)
    (folder / "config.yaml").write_text(CONFIG)
    return folder


@pytest.fixture
async def operations(home: Path) -> AsyncIterator[Operations]:
    keeper = GatewayKeeper()
    async with running(home, None, keeper):
        yield keeper.gateway.operations


async def form_of(operations: Operations, path: str) -> SettingsForm:
    forms = (await operations.configuration()).forms
    return next(form for form in forms if form.path == path)


def entries(operations: Operations) -> dict[str, Any]:
    return {entry.id: entry for entry in operations.plugins()}


def text_of(home: Path) -> str:
    return (home / "config.yaml").read_text()


async def test_a_form_has_the_schema_and_values_and_no_secret(operations: Operations) -> None:
    configuration = await operations.configuration()
    kettle = await form_of(operations, "kettle")

    assert (kettle.owner, kettle.values["heat"], kettle.values["key"]) == ("kettle", 90, MASK)
    properties = kettle.schema["properties"]
    assert isinstance(properties, dict)
    assert set(properties) >= {"heat", "key", "rooms"}
    assert SECRET not in repr(configuration)
    assert [form.owner for form in configuration.forms] == sorted(
        (form.owner for form in configuration.forms), key=bool
    )


async def test_a_change_keeps_comments_and_secrets_and_is_applied(
    operations: Operations, home: Path
) -> None:
    before = await operations.configuration()

    said = await operations.configure({"kettle.heat": 70}, before.revision)

    assert "kettle" in said
    assert text_of(home) == CONFIG.replace("heat: 90", "heat: 70")
    after = await operations.configuration()
    assert (await form_of(operations, "kettle")).values["heat"] == 70
    assert after.revision != before.revision


async def test_a_value_that_is_removed_has_its_default_again(
    operations: Operations, home: Path
) -> None:
    revision = (await operations.configuration()).revision

    await operations.configure({"kettle.heat": None}, revision)

    assert "heat" not in yaml.safe_load(text_of(home))["kettle"]
    assert SECRET in text_of(home)


async def test_a_change_for_another_revision_is_refused(operations: Operations, home: Path) -> None:
    revision = (await operations.configuration()).revision
    (home / "config.yaml").write_text(f"{CONFIG}# edited by hand\n")

    with pytest.raises(ConfigUnreadable, match="changed meanwhile"):
        await operations.configure({"kettle.heat": 70}, revision)

    assert text_of(home) == f"{CONFIG}# edited by hand\n"


async def test_of_two_changes_for_one_revision_one_is_made(
    operations: Operations, home: Path
) -> None:
    revision = (await operations.configuration()).revision

    done = await asyncio.gather(
        *(operations.configure({"kettle.heat": heat}, revision) for heat in (60, 70)),
        return_exceptions=True,
    )

    assert sorted(type(each).__name__ for each in done) == ["ConfigUnreadable", "str"]
    assert yaml.safe_load(text_of(home))["kettle"]["heat"] in (60, 70)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"kettle.heat": "warm"}, "kettle.heat"),
        ({"kettle.heat": 70, "kettle.rooms": 5}, "kettle.rooms"),
        ({"gateway.port": "x"}, "gateway.port"),
        ({"kettle.key": MASK}, "kettle.key"),
        ({"kettle": {"key": f"a{MASK}"}}, "kettle"),
    ],
)
async def test_values_that_do_not_fit_change_nothing(
    operations: Operations, home: Path, changes: dict[str, Any], path: str
) -> None:
    revision = (await operations.configuration()).revision

    with pytest.raises(ConfigInvalid) as refused:
        await operations.configure(changes, revision)

    assert path in [problem.path for problem in refused.value.problems]
    assert SECRET not in str(refused.value)
    assert text_of(home) == CONFIG


async def test_a_value_from_the_environment_is_named_as_fixed(home: Path) -> None:
    keeper = GatewayKeeper()
    async with running(home, None, keeper, environ={"NANOBOT_KETTLE__HEAT": "55"}):
        kettle = await form_of(keeper.gateway.operations, "kettle")

    assert kettle.values["heat"] == 55
    assert list(kettle.fixed) == ["kettle.heat"]


async def test_a_plugin_is_disabled_enabled_and_reloaded(operations: Operations) -> None:
    before = entries(operations)["kettle"]
    off = await operations.change_plugin("kettle", "disable")
    disabled = entries(operations)["kettle"]
    on_again = await operations.change_plugin("kettle", "enable")
    reloaded = await operations.change_plugin("kettle", "reload")

    assert (before.state, disabled.state, disabled.is_quiet) == ("active", "disabled", True)
    assert [said.splitlines()[0] for said in (off, on_again, reloaded)] == [
        "disabled: kettle",
        "enabled: kettle",
        "reloaded: kettle",
    ]
    assert entries(operations)["kettle"].state == "active"


async def test_an_unknown_plugin_is_an_error_and_not_written(
    operations: Operations, home: Path
) -> None:
    with pytest.raises(NanobotError):
        await operations.change_plugin("kettel", "disable")

    assert "kettel" not in text_of(home)


async def test_a_question_is_answered_once(tmp_path: Path) -> None:
    keeper, ask = GatewayKeeper(), {"approval": [{"tool": "note", "action": "ask"}]}
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ask)
        async with running(tmp_path, None, keeper):
            await platform.say('call note {"word": "once"}')
            await platform.shows("Run note?")
            (question,) = keeper.gateway.operations.questions()

            answers = await asyncio.gather(
                *(
                    keeper.gateway.operations.answer_question(question.id, allowed=True, by="page")
                    for _ in range(2)
                )
            )

            await platform.shows("The tool said: noted once")
            late = await keeper.gateway.operations.answer_question(
                question.id, allowed=False, by="page"
            )
            assert keeper.gateway.operations.questions() == []
    assert (question.tool, question.arguments) == ("note", {"word": "once"})
    assert question.digest
    assert question.expires_at > datetime(2020, 1, 1, tzinfo=UTC)
    assert sorted(answers) == [False, True]
    assert late is False


async def test_an_unknown_question_letter_or_session_is_not_found(operations: Operations) -> None:
    assert list(operations.questions()) == []
    assert not await operations.answer_question("x", allowed=True, by="page")
    assert list(await operations.dead_letters()) == []
    assert not await operations.retry("x")
    assert not await operations.drop("x")
    assert not await operations.stop_turn("chatty:none")


async def test_the_log_is_its_last_lines_without_secrets(
    operations: Operations, home: Path
) -> None:
    file = home / "logs" / "nanobot.log"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"x" * 600_000 + "\nfirst\nsecond caf\xe9\n".encode("latin-1"))

    assert list(await operations.log(1)) == ["second caf\ufffd"]
    assert list(await operations.log(5)) == ["first", "second caf\ufffd"]
    assert list(await operations.log(0)) == []
    file.unlink()
    assert list(await operations.log(5)) == []


async def test_the_forms_show_a_file_that_was_edited_and_not_applied(
    operations: Operations, home: Path
) -> None:
    (home / "config.yaml").write_text(CONFIG.replace("heat: 90", "heat: 40"))

    shown = await operations.configuration()
    kettle = await form_of(operations, "kettle")
    said = await operations.configure({}, shown.revision)

    assert (kettle.values["heat"], shown.is_applied) == (40, False)
    assert "kettle" in said
    assert text_of(home) == CONFIG.replace("heat: 90", "heat: 40")
    assert (await operations.configuration()).is_applied


async def test_a_new_secret_in_the_file_is_not_shown(operations: Operations, home: Path) -> None:
    (home / "config.yaml").write_text(CONFIG.replace(SECRET, "another-one-7431"))

    assert "another-one-7431" not in repr(await operations.configuration())


async def test_a_fault_elsewhere_in_the_file_is_named_and_must_be_corrected_first(
    operations: Operations, home: Path
) -> None:
    faulty = f"{CONFIG}\ntools: {{timeout_s: soon}}\n"
    (home / "config.yaml").write_text(faulty)
    shown = await operations.configuration()

    with pytest.raises(ConfigInvalid, match=r"tools\.timeout_s"):
        await operations.configure({"kettle.heat": 70}, shown.revision)
    assert [each.path for each in shown.problems] == ["tools.timeout_s"]
    assert text_of(home) == faulty

    await operations.configure({"tools.timeout_s": None}, shown.revision)
    assert "soon" not in text_of(home)


async def test_a_file_that_cannot_be_parsed_has_no_forms(
    operations: Operations, home: Path
) -> None:
    (home / "config.yaml").write_text("kettle: [")

    with pytest.raises(ConfigUnreadable, match="line 2"):
        await operations.configuration()
