"""Sentences for people are broken between words, those for programs not at all."""

from __future__ import annotations

import pytest

from headrace.cli.output import console

SENTENCE = "error: nothing is stored about a queue named 'mail': headrace queues lists what is there"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "is_terminal", lambda stderr=False: True)
    monkeypatch.setenv("COLUMNS", "40")


@pytest.mark.usefixtures("terminal")
def test_a_person_reads_whole_words() -> None:
    lines = console.wrapped(SENTENCE).splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == SENTENCE


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    "whole", ["more: --cursor " + "x" * 60, "first\n\n  second", "01990000-0000-7000-8000-0000deadbeef"]
)
def test_what_cannot_be_broken_and_what_need_not_be_stays(whole: str) -> None:
    assert console.wrapped(whole).split() == whole.split()
    assert ("x" * 60 in console.wrapped(whole)) is ("x" * 60 in whole)
    if len(whole) <= 40:
        assert console.wrapped(whole) == whole


def test_a_program_reads_one_line() -> None:
    assert console.wrapped(SENTENCE) == SENTENCE
