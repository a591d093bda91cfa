from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.defaults import MAX_KEY_CHARACTERS
from headrace.core.matching.customers import own

TRICKY = st.text(alphabet="\x1f#:123a", max_size=6)
WHOSE = st.tuples(st.none() | TRICKY, TRICKY)


@given(WHOSE, WHOSE)
def test_no_two_customers_share_a_key_whatever_they_are_called(
    one: tuple[str | None, str], other: tuple[str, str]
) -> None:
    assert (own(*one) == own(*other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b:c"), ("a:b", "c")),
        (("a", "bc"), ("ab", "c")),
        (("a", ":c"), ("a:", "c")),
        (("1:a", "b"), ("1", ":ab")),
        (("a", ""), ("", "a")),
        ((None, "a:b"), ("a", "b")),
        ((None, "\x1f1:ab"), ("a", "b")),
        ((None, "\x1f\x1f1:ab"), ("a", "b")),
    ],
)
def test_where_the_customer_ends_and_the_key_begins_is_told_by_no_character(
    one: tuple[str | None, str], other: tuple[str | None, str]
) -> None:
    assert own(*one) != own(*other)


def test_a_key_without_a_customer_is_kept_as_it_was_said() -> None:
    assert own(None, "report:2026") == "report:2026"


def test_what_is_long_is_kept_short_and_apart() -> None:
    texts = {own("c" * n, "k" * (MAX_KEY_CHARACTERS - n)) for n in range(MAX_KEY_CHARACTERS)}
    assert len(texts) == MAX_KEY_CHARACTERS
    assert max(map(len, texts)) <= MAX_KEY_CHARACTERS
