"""Ever: what was told once is never taken back."""

from __future__ import annotations

from headrace.core.stats.rollup import OTHER, Totals
from headrace.runtime.totals import MAX_PAIRS, LifetimeTotals


def completed(number: int) -> Totals:
    return Totals(completed=number)


def test_what_is_pending_counts_before_and_after_it_is_added() -> None:
    ever, pending = LifetimeTotals(), {("a", "q"): completed(2)}
    ever.add({("a", "q"): completed(1), ("b", "q"): completed(5)})
    before, _ = ever.all([pending])
    assert {pair: one.completed for pair, one in before.items()} == {("a", "q"): 3, ("b", "q"): 5}
    ever.add(pending)
    assert ever.all([])[0] == before
    assert ever.all([])[0] == before  # asking adds nothing


def test_dead_letters_are_counted_by_task_and_queue() -> None:
    ever = LifetimeTotals()
    for pair in (("a", "q"), ("a", "q"), ("a", "r")):
        ever.died(*pair)
    assert ever.all([])[1] == {("a", "q"): 2, ("a", "r"): 1}


def test_beyond_the_most_pairs_queues_are_one_and_no_count_changes_its_name() -> None:
    ever = LifetimeTotals()
    first = {("a", f"q{n}"): completed(1) for n in range(MAX_PAIRS)}
    more = {("a", "late"): completed(3), ("b", "late"): completed(4)}
    told, _ = ever.all([first, more])
    assert len(told) == MAX_PAIRS + 2
    assert (told["a", OTHER].completed, told["b", OTHER].completed) == (3, 4)
    ever.add(more)  # in another order than it was told
    ever.add(first)
    assert ever.all([])[0] == told
    ever.died("a", "late")
    assert ever.all([])[1] == {("a", OTHER): 1}
