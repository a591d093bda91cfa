"""The table of the guide says what rules do where the clocks turn; it must be so."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.schedule.fires import preview
from headrace.core.schedule.rules import Cron
from tests.docs.pages import ROOT

ROW = re.compile(
    r"^\| (?P<tz>\w+/\w+) \| (?P<day>\d{4}-\d\d-\d\d), [^|]+ \| `(?P<expr>[^`]+)` \|(?P<fires>.+)\|$", re.MULTILINE
)
ROWS = [found.groupdict() for found in ROW.finditer((ROOT / "docs/guides/schedules.md").read_text(encoding="utf-8"))]


def test_every_zone_turn_and_rule_is_told() -> None:
    told = {(row["tz"], row["expr"], row["day"][5:7]) for row in ROWS}
    assert len(told) == len(ROWS) == 12
    assert {tz for tz, _, _ in told} == {"America/New_York", "Europe/London", "Australia/Lord_Howe"}
    assert {expr for _, expr, _ in told} == {"0 2 * * *", "30 1 * * *"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['tz']} {row['day']} {row['expr']}")
def test_the_fires_are_as_told(row: dict[str, str]) -> None:
    turn = datetime.fromisoformat(row["day"])
    cells = [cell.strip().replace("−", "-").replace(" ", "") for cell in row["fires"].split("|")]
    told = [
        datetime.fromisoformat(f"{turn + timedelta(days=shift):%Y-%m-%d}T{cell}")
        for shift, cell in zip((-1, 0, 1), cells, strict=True)
    ]
    found = preview(Cron(row["expr"], tz=row["tz"]), told[0].astimezone(UTC) - timedelta(hours=1), told[0], 3)
    assert found == told
