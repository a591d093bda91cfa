"""Errors of attempts, counted by fingerprint."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from headrace.core.attempt import ErrorInfo
from headrace.core.stats.errors import MAX_ERRORS, MAX_GATHERED_ERRORS, ErrorSum, add_error, commonest, errors_of
from headrace.core.stats.rollup import Rollup, Step, Totals, merged

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANN, BOB = UUID(int=1), UUID(int=2)


def test_an_error_is_counted_with_its_last_job_and_not_with_its_message() -> None:
    errors: dict[str, ErrorSum] = {}
    add_error(errors, "aa", ErrorInfo("ValueError", "ann's secret"), ANN)
    add_error(errors, "aa", ErrorInfo("ValueError", "bob's secret"), BOB)
    assert errors == {"aa": ErrorSum(2, BOB, "ValueError", None)}
    for number in range(2 * MAX_GATHERED_ERRORS):
        add_error(errors, f"e{number}", ErrorInfo("E" * 1000, ""), ANN)
    assert len(errors) == MAX_GATHERED_ERRORS, "an attempt costs the same, whatever fails"
    assert max(len(one.type) for one in errors.values()) == 128


def test_of_two_rows_the_commonest_are_kept() -> None:
    one = {f"a{n}": ErrorSum(n, ANN, "A", None) for n in range(1, MAX_ERRORS + 1)}
    two = {f"b{n}": ErrorSum(n, BOB, "B", None) for n in range(1, MAX_ERRORS + 1)} | {
        "a1": ErrorSum(99, BOB, "A", None)
    }
    for rows in ((one, two), (two, one)):
        added = commonest(*rows)
        assert len(added) == MAX_ERRORS
        assert added["a1"].attempts == 100
        assert {"a20", "b20", "a12", "b12"} <= {*added}
        assert not {"a9", "b9"} & {*added}


def test_rows_of_one_minute_add_up_their_errors() -> None:
    def row(**errors: int) -> Rollup:
        sums = {name: ErrorSum(count, ANN, "E", None) for name, count in errors.items()}
        return Rollup(Step.MINUTE, NOW, "t", "q", Totals(failed=1, errors=sums))

    [found] = merged([row(a=1, b=2), row(b=3), Rollup(Step.MINUTE, NOW, "t", "q", Totals(completed=1))])
    assert {name: one.attempts for name, one in found.totals.errors.items()} == {"a": 1, "b": 5}


def test_errors_are_listed_by_task_the_commonest_first_with_their_last_job() -> None:
    def row(ago: int, task: str, queue: str, job: UUID, attempts: int) -> Rollup:
        totals = Totals(errors={"aa": ErrorSum(attempts, job, "E", "shop.py:pay")})
        return Rollup(Step.MINUTE, NOW - timedelta(minutes=ago), task, queue, totals)

    rows = [row(1, "pay", "q", BOB, 2), row(5, "pay", "p", ANN, 3), row(2, "mail", "q", ANN, 4)]
    for order in (rows, rows[::-1]):
        found = errors_of(order, 10)
        assert [(one.task, one.attempts, one.example) for one in found] == [("pay", 5, BOB), ("mail", 4, ANN)]
        assert found[0].last_seen == NOW - timedelta(minutes=1)
    assert len(errors_of(rows, 1)) == 1
