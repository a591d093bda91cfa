"""A sorted collection that is emptied from the front, mostly."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.memory.job_table import Index


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=200))
def test_it_is_what_a_sorted_list_would_be(steps: list[tuple[bool, int]]) -> None:
    index, plain = Index(), list[tuple[tuple[int, int], UUID]]()
    for seq, (add, number) in enumerate(steps):
        if add or not plain:
            entry = ((number, seq), UUID(int=seq))
            index.add(*entry)
            plain = sorted([*plain, entry])
        else:
            # Small numbers are near the front, where most is taken.
            entry = plain.pop(min(number // 4, len(plain) - 1))
            index.remove(*entry)
        assert list(index) == plain
        assert len(index) == len(plain)
        assert index.first() == (plain[0][0] if plain else None)
        assert list(index.upto(10)) == [id for sort, id in plain if sort[0] <= 10]
        assert list(index.before((10, 5))) == [id for sort, id in plain if sort < (10, 5)]
        assert list(index.last()) == plain[::-1]
