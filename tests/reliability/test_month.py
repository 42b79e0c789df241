"""A gateway with everything for days, with faults from a seed; `tests.month` runs months."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.stand_ins import installed_stand_ins

for _plugin in ("api", "cron", "heartbeat", "http", "mcp", "memory", "page", "subagents", "usage"):
    if find_spec(f"nanobot_{_plugin}") is None:
        pytest.skip(f"nanobot-{_plugin} is not installed", allow_module_level=True)
pytest.importorskip("mcp_server_time")
if not any(kind.name == "telegram" for kind in installed_stand_ins()):
    pytest.skip("nanobot-telegram is not installed", allow_module_level=True)

from tests.month.faults import disk_full, kill  # noqa: E402 - see above
from tests.month.month import live, prepared  # noqa: E402 - see above
from tests.month.report import Report  # noqa: E402 - see above

pytestmark = pytest.mark.anyio


def show(report: Report) -> None:
    """Print what has happened."""
    print(report)  # noqa: T201 - the figures are what the test is run for


@pytest.mark.timeout(300)
async def test_a_day_with_a_kill_and_a_full_disk_breaks_no_invariant(tmp_path: Path) -> None:
    async with prepared(tmp_path, seed=1) as month:
        await month.start()
        await month.day([kill], [disk_full])
        await month.close()
        assert month.report.findings == [], str(month.report)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", [101, 102])
async def test_a_week_breaks_no_invariant(tmp_path: Path, seed: int) -> None:
    report = await live(tmp_path, seed, 7, show)
    assert report.days == 7
    assert report.findings == [], str(report)
