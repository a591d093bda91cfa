"""The load of jobs; the suite of engines compares what they count with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headrace.core.stats.load import Load, merged_loads

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def test_loads_of_one_kind_are_added_up() -> None:
    early = NOW - timedelta(minutes=3)
    found = merged_loads(
        [
            Load(queue="q", task="a", requires={"x": 1, "y": 2}, queued=2, oldest=NOW, ended={0: 1}),
            Load(queue="q", task="a", requires={"y": 2, "x": 1}, queued=1, oldest=early, held=3, more=True),
            Load(queue="q", task="a", requires={"y": 2, "x": 1}, ended={0: 2, 4: 1}),
            Load(queue="q", task="a", held=1),
            Load(queue="q", task="b", held=1),
        ]
    )
    both, *rest = found
    assert (both.queued, both.oldest, both.held, both.more, both.ended) == (3, early, 3, True, {0: 3, 4: 1})
    assert [(one.task, one.requires, one.held) for one in rest] == [("a", {}, 1), ("b", {}, 1)]
