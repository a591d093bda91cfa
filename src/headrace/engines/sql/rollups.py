"""Rollups as rows, and how they are regrouped: the same in every SQL engine.

A row is the seconds of its step, the moment, task, queue, and the totals as JSON. A report, which is many rows in one,
has 0 seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from headrace.core.stats.rollup import Rollup, Step, Totals, concerns, due_before, merged, regrouped
from headrace.engines.sql.encoding import encode, micros, moment

__all__ = ["asked", "due", "places_of", "read_rows", "together", "written"]

_STEPS = {step.seconds: step for step in Step}

_reports = msgspec.json.Decoder(tuple[Rollup, ...]).decode
_totals = msgspec.json.Decoder(Totals).decode


def read_rows(rows: Iterable[Any]) -> list[Rollup]:
    """Return the rollups in these rows."""
    found, moments = list[Rollup](), dict[int, datetime]()  # a moment has a row of every task
    for seconds, at, task, queue, data in rows:
        if seconds == 0:
            found += _reports(data)
            continue
        if (began := moments.get(at)) is None:
            began = moments[at] = moment(at)
        found.append(Rollup(_STEPS[seconds], began, task, queue, _totals(data)))
    return found


def asked(rows: Iterable[Any], since: datetime, until: datetime, task: str | None, queue: str | None) -> list[Rollup]:
    """Return those that are requested: the statement has left out others, but not within reports."""
    found, timely = list[Rollup](), dict[tuple[Step, datetime], bool]()
    for row in read_rows(rows):
        place = row.step, row.at
        if (within := timely.get(place)) is None:
            within = timely[place] = concerns(row, since, until)
        if within and (task is None or row.task == task) and (queue is None or row.queue == queue):
            found.append(row)
    return found


def due(now: datetime) -> list[int]:
    """Return the moments before which minutes, hours and days are due."""
    before = due_before(now)
    return [micros(before[step]) for step in Step]


def together(rows: Iterable[Any], now: datetime) -> list[Rollup]:
    """Return taken rows regrouped."""
    return regrouped(read_rows(rows), now)


def places_of(rows: Iterable[Rollup]) -> list[tuple[int, int]]:
    """Return the steps and moments of these."""
    return sorted({(row.step.seconds, micros(row.at)) for row in rows})


def written(moved: Sequence[Rollup], there: Iterable[Any]) -> list[Any]:
    """Return the rows to write: those that were moved, with those that were stored before."""
    return _rows_of(merged([*moved, *read_rows(there)]))


def _rows_of(rollups: Iterable[Rollup]) -> list[Any]:
    """Return the rows of these rollups."""
    return [(one.step.seconds, micros(one.at), one.task, one.queue, encode(one.totals)) for one in rollups]
