"""``charts``: what was finished, for people and for programs."""

from __future__ import annotations

from tests.cli.conftest import Shell


def test_what_was_finished_is_shown(shell: Shell) -> None:
    shell.submit("add", "a=1")
    assert "nothing was finished" in shell("charts", "--url", shell.url).stderr
    shell.submit("add", "a=2")
    shell.submit("resize", "image=x.png")
    shell.work()
    text = shell("charts", "--url", shell.url).stdout
    assert [line.split()[:3] for line in text.splitlines()[1:3]] == [["add", "default", "2"], ["resize", "images", "1"]]
    assert "█" in text
    assert "a bar is 4 m; waited, ran: p50 / p95" in text
    found = shell.json("charts", "--url", shell.url, "--task", "add", "--since", "2h")
    assert [(one["task"], one["queue"], one["total"]["completed"]) for one in found["series"]] == [
        ("add", "default", 2)
    ]
    assert found["series"][0]["total"]["running"]["count"] == 2
    assert found["step"] == "minute"
    assert shell.json("charts", "--url", shell.url, "--step", "day", "--since", "30d")["step"] == "day"
    assert shell.json("charts", "--url", shell.url, "--until", "1h", "--since", "2026-01-01")["series"] == []


def test_what_cannot_be_read_is_named(shell: Shell) -> None:
    assert "'soon' is not a moment" in shell("charts", "--since", "soon", "--url", shell.url, code=2).stderr
    assert "since must be before until" in shell("charts", "--until", "3h", "--url", shell.url, code=2).stderr
