from __future__ import annotations

import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from nanobot_core.testing import FakePluginContext
from nanobot_usage.commands import usage
from nanobot_usage.plugin import UsagePlugin
from nanobot_usage.store import Call, UsageStore

app = typer.Typer()
app.command()(usage)


@pytest.fixture
def context(tmp_path: Path) -> FakePluginContext:
    """A context whose record holds a call of today and one of the day before."""
    context = FakePluginContext(tmp_path)
    today = context.clock.now().date()
    yesterday = today - timedelta(days=1)
    with closing(UsageStore(context.data_dir)) as store:
        for day, model in ((today, "new"), (yesterday, "old")):
            call = Call(
                day=day.isoformat(),
                model=model,
                session="s",
                source="chat",
                plugin="p",
                prompt_tokens=90,
                completion_tokens=10,
                cached_tokens=5,
                nano_usd=250_000_000,
            )
            store.add([call])
    return context


def run(context: FakePluginContext, *words: str) -> Result:
    # The host hands commands a function that opens the plugin's context.
    return CliRunner().invoke(app, words, obj=lambda: context)


def test_by_default_the_models_of_today_are_shown(context: FakePluginContext) -> None:
    lines = run(context).stdout.splitlines()

    assert lines == [
        "model\tcalls\ttokens\tcached\tusd\tunpriced",
        "new\t1\t100\t5\t0.2500\t0",
    ]


def test_more_days_and_another_grouping_can_be_asked_for(context: FakePluginContext) -> None:
    rows = json.loads(run(context, "--days", "2", "--by", "source", "--json").stdout)

    assert [(row["source"], row["calls"], row["usd"]) for row in rows] == [("chat", 2, 0.5)]
    assert set(rows[0]) == {
        "source",
        "calls",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "reasoning_tokens",
        "unpriced_calls",
        "usd",
    }


def test_an_empty_record_is_said_to_be_empty(tmp_path: Path) -> None:
    result = run(FakePluginContext(tmp_path))

    assert result.exit_code == 0
    assert result.stdout == ""
    assert "No model call" in result.stderr


@pytest.mark.parametrize("words", [("--days", "0"), ("--by", "moon")])
def test_what_cannot_be_summed_is_wrong_use(
    context: FakePluginContext, words: tuple[str, ...]
) -> None:
    assert run(context, *words).exit_code == 2


def test_the_plugin_names_a_command_that_exists() -> None:
    (group,) = UsagePlugin().contribute_cli()

    assert group.app == f"{usage.__module__}:{usage.__name__}"
