"""``charts``: what was finished, for people and for programs."""

from __future__ import annotations

import io

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from headrace.cli.commands.stats import view
from headrace.core.stats.charts import Charts
from headrace.core.stats.histogram import Quantiles
from tests.cli.conftest import Shell

TIMES = Quantiles(count=9, mean=0.02, p50=0.02, p95=0.07, p99=0.09)


def test_what_was_finished_is_shown(shell: Shell) -> None:
    shell.submit("add", "a=1")
    assert "nothing was finished" in shell("charts", "--url", shell.url).stderr
    shell.submit("add", "a=2")
    shell.submit("resize", "image=x.png")
    shell.work()
    text = shell("charts", "--url", shell.url).stdout
    assert [line.split()[:3] for line in text.splitlines()[1:3]] == [["add", "default", "2"], ["resize", "images", "1"]]
    assert "█" in text
    assert "a bar is 4 m; numbers are attempts; waited, ran: p50 / p95" in text
    found = shell.json("charts", "--url", shell.url, "--task", "add", "--since", "2h")
    assert [(one["task"], one["queue"], one["total"]["completed"]) for one in found["series"]] == [
        ("add", "default", 2)
    ]
    assert found["series"][0]["total"]["running"]["count"] == 2
    assert found["step"] == "minute"
    assert shell.json("charts", "--url", shell.url, "--step", "day", "--since", "30d")["step"] == "day"
    assert shell.json("charts", "--url", shell.url, "--until", "1h", "--since", "2026-01-01")["series"] == []


def test_what_cannot_be_read_is_named(shell: Shell) -> None:
    for words, told in (
        (("--since", "soon"), "'soon' is neither a moment nor a length of time"),
        (("--since", "-1h"), "'-1h' has a sign: say 1h"),
        (("--since", "999999d"), "'999999d' is longer than a century"),
        (("--until", "3h"), "--until must be later than --since: nothing is between"),
    ):
        assert told in shell("charts", *words, "--url", shell.url, code=2).stderr


@pytest.mark.parametrize(("columns", "kept"), [(80, {"waited", "ran"}), (130, {"retried", "attempts"})])
def test_on_a_narrow_terminal_lines_can_still_be_told_apart(shell: Shell, columns: int, kept: set[str]) -> None:
    shell.submit("add", "a=1")
    shell.work()
    found = msgspec.convert(shell.json("charts", "--url", shell.url), Charts)
    [one] = found.series
    one = replace(one, total=replace(one.total, waiting=TIMES, running=TIMES))
    series = tuple(replace(one, task="charge_the_card_again", queue=queue) for queue in ("default", "overnight"))
    out = Console(file=io.StringIO(), width=columns)
    out.print(view(replace(found, series=series), columns))
    assert isinstance(out.file, io.StringIO)
    head, first, second, *legend = out.file.getvalue().splitlines()
    assert {"task", "queue", "done", "failed", *kept} <= set(head.split())
    assert "charge_the_card_again  default" in first
    assert "charge_the_card_again  overnight" in second
    assert max(map(len, (head, first, second))) <= columns
    assert ("a bar is" in " ".join(legend)) == ("attempts" in head)
