"""Kinds of values that several commands share."""

from __future__ import annotations

from datetime import timedelta

import click
import pytest
from click.shell_completion import ShellComplete

from headrace.cli.options import Address, address, duration, moment
from headrace.cli.root import cli


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("250ms", 0.25),
        ("15m", 900),
        ("2h", 7200),
        ("1.5d", 129600),
        (".5s", 0.5),
        ("60s", 60),
        ("1h30m", 5400),
        ("1M 5S", 65),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "soon", "5 parsecs", "inf", "nan", "1e3", "30m1h", "1h1h", "1h30"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not a duration"):
        duration(text)


def test_a_moment_without_an_offset_is_local_time() -> None:
    assert moment("2026-01-31T08:00+01:00").utcoffset() == timedelta(hours=1)
    assert moment("2026-01-31T08:00").tzinfo is not None
    with pytest.raises(click.BadParameter, match="not a moment"):
        moment("tomorrow")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
        (":8080", Address("127.0.0.1", 8080)),
        ("8080", Address("127.0.0.1", 8080)),
        ("[::1]:9", Address("::1", 9)),
    ],
)
def test_an_address_is_host_and_port(text: str, meant: Address) -> None:
    assert address(text) == meant
    assert address(str(meant)) == meant


@pytest.mark.parametrize("text", ["", "localhost", "localhost:http", "x:70000"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not HOST:PORT"):
        address(text)


@pytest.mark.parametrize(
    ("words", "begun", "found"),
    [
        ([], "re", ["retrying"]),
        (["--words", "jobmaster"], "q", ["Queued"]),
        (["--words", "emprops"], "TI", ["timeout"]),
        (["--words", "emprops"], "p", []),  # no job is pending in this version
    ],
)
def test_a_shell_completes_statuses_in_the_words_of_the_line(words: list[str], begun: str, found: list[str]) -> None:
    completion = ShellComplete(cli, {}, "headrace", "_HEADRACE_COMPLETE")
    items = completion.get_completions(["jobs", *words, "--status"], begun)
    assert [item.value for item in items] == found
