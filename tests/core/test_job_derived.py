"""Computed ids."""

from __future__ import annotations

from uuid import UUID

from headrace.core.job import derived_id

SOURCE = UUID("01a1e56d-1057-7000-a512-d4e3cdb2642b")


def test_it_is_the_same_each_time_and_another_for_another_text() -> None:
    assert derived_id(SOURCE, "a") == derived_id(SOURCE, "a") != derived_id(SOURCE, "b")


def test_it_has_the_time_of_its_source_and_is_a_uuid7() -> None:
    made = derived_id(SOURCE, "a")
    assert made.int >> 80 == SOURCE.int >> 80
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
