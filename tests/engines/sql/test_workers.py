"""Rows of workers: all that is shown of a worker is read, and what a beat says is written."""

from __future__ import annotations

import re

from headrace.engine import WorkerRow
from headrace.engines.sql.workers import COLUMNS

NOT_KEPT = {"holds", "silent_since"}
"""What is counted or judged when a worker is shown."""


def test_every_field_of_a_worker_is_read() -> None:
    read = {name for column in COLUMNS for name in re.findall(r"(\w+)=", column.read)}
    assert read | NOT_KEPT == set(WorkerRow.__struct_fields__)


def test_what_a_beat_writes_was_written_for_a_new_worker_before() -> None:
    assert {"beat", "beat_at"} <= {column.name for column in COLUMNS if column.changed and column.new}
