"""The panel ``usage``, as a page or a terminal uses it."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from nanobot_core import NanobotError, Panel, PanelBars, PanelTable, PanelText
from nanobot_core.testing import FakePluginContext
from nanobot_usage.plugin import UsagePlugin
from nanobot_usage.store import Call, UsageStore


@pytest.fixture
def context(tmp_path: Path) -> FakePluginContext:
    """A context whose record holds a call of today and one of ten days ago, without a price."""
    context = FakePluginContext(tmp_path, settings={})
    today = context.clock.now().date()
    with closing(UsageStore(context.data_dir)) as store:
        for back, model, nano_usd in ((0, "new", 250_000_000), (10, "old", None)):
            call = Call(
                day=(today - timedelta(days=back)).isoformat(),
                model=model,
                session="s",
                source="chat",
                plugin="p",
                prompt_tokens=9_000,
                completion_tokens=1_000,
                cached_tokens=5,
                nano_usd=nano_usd,
            )
            store.add([call])
    return context


@pytest.fixture
def panel(context: FakePluginContext) -> Panel:
    (found,) = UsagePlugin().contribute_panels(context)
    return found


async def test_bars_have_each_day_and_its_amount_in_words(
    panel: Panel, context: FakePluginContext
) -> None:
    view = await panel.show("")
    tokens, cost = (part for part in view.parts if isinstance(part, PanelBars))

    assert len(tokens.bars) == len(cost.bars) == 30
    today = context.clock.now().date().isoformat()
    assert tokens.bars[-1] == (today, 10_000.0, "10,000")
    assert tokens.bars[-2][1:] == (0.0, "0")
    assert cost.bars[-1] == (today, 0.25, "$0.2500")


async def test_sums_are_shown_by_model_plugin_and_source(panel: Panel) -> None:
    view = await panel.show("")
    tables = {part.title: part.rows for part in view.parts if isinstance(part, PanelTable)}
    (text,) = (part.text for part in view.parts if isinstance(part, PanelText))

    assert "Today: 10,000 tokens, $0.2500. Last 30 days: 20,000 tokens, $0.2500." in text
    assert [row.cells for row in tables["By model"]] == [
        ("new", "1", "9,000", "5", "1,000", "0.2500"),
        ("old", "1", "9,000", "5", "1,000", "0.0000 (1 of 1 without a price)"),
    ]
    assert [row.cells[:2] for row in tables["By plugin"]] == [("p", "2")]
    assert [row.cells[:2] for row in tables["By source"]] == [("chat", "2")]


async def test_a_period_shows_its_days_only(panel: Panel) -> None:
    view = await panel.show("7")
    (models, *_) = (part for part in view.parts if isinstance(part, PanelTable))

    assert [row.cells[0] for row in models.rows] == ["new"]
    assert [link.view for link in view.links] == ["30", "90"]


async def test_without_prices_there_are_no_bars_of_money(tmp_path: Path) -> None:
    (panel,) = UsagePlugin().contribute_panels(FakePluginContext(tmp_path, settings={}))

    view = await panel.show("")

    assert [part.title for part in view.parts if isinstance(part, PanelBars)] == ["Tokens per day"]


@pytest.mark.parametrize("view", ["8", "x", "-30", "030"])
async def test_an_unknown_period_is_an_error(panel: Panel, view: str) -> None:
    with pytest.raises(NanobotError, match="7, 30, 90 days"):
        await panel.show(view)


async def test_a_damaged_record_is_an_error_in_words(tmp_path: Path) -> None:
    context = FakePluginContext(tmp_path, settings={})
    (context.data_dir / "usage.sqlite").write_bytes(b"not a database" * 100)
    (panel,) = UsagePlugin().contribute_panels(context)

    with pytest.raises(NanobotError, match="the record of usage cannot be read"):
        await panel.show("")


async def test_it_has_no_actions(panel: Panel) -> None:
    with pytest.raises(NanobotError, match="no actions"):
        await panel.act("remove", "all")
