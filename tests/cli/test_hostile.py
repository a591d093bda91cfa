"""Whatever anybody has written into a job: no command gives a terminal, or a pipe, anything to obey."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace import App, Context, Retry
from headrace.cli.commands import feed
from headrace.cli.options import State
from headrace.cli.output import console
from headrace.cli.process import log_output
from headrace.cli.root import cli
from headrace.core.attempt import Progress
from headrace.core.control_characters import printable
from headrace.core.job import Job
from headrace.core.updates import Changed
from tests.support.hostile import HUGE, SPELLED, WICKED, raw_in
from tests.support.screens.typist import type_all

pytestmark = pytest.mark.timeout(240)

OBEYED = ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\x9d", "\x9c", "\x7f", "\x85", "\u2028", "\u2029")
TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""What is wicked in the texts; a terminal is sent colours and moves of our own, which begin with ESC as well."""


def shop(url: str) -> App:
    app = App(url)
    error = type(WICKED, (Exception,), {})

    @app.task(retry=Retry(0))
    async def good(ctx: Context, text: str) -> dict[str, str]:
        # As a version before this one kept it: no handler can say such a number any more.
        ctx._caller.report(Progress(50.0, WICKED, WICKED, details={WICKED: HUGE}))
        logging.getLogger(WICKED).error(WICKED)
        await ctx.flush()
        return {WICKED: WICKED}

    @app.task(retry=Retry(0))
    async def bad(text: str) -> None:
        raise error(WICKED)

    @app.task(retry=Retry(0))
    async def plain(text: str) -> str:
        return WICKED

    return app


async def filled(url: str) -> dict[str, str]:
    """A store with wicked text in every field that anybody can set, and ids in it."""
    app = shop(url)
    options: dict[str, Any] = {
        "dedup": WICKED,
        "customer": WICKED,
        "concurrency_key": WICKED,
        "request_key": WICKED,
        "metadata": {WICKED: WICKED},
        "trace": {WICKED: WICKED},
    }
    async with app:
        tasks = app.tasks
        made = {name: await tasks[name].options(**options).submit(WICKED) for name in ("good", "bad", "plain")}
        async with app.batch() as batch:
            batch.add(tasks["good"].options(customer=WICKED).draft(WICKED))
        await app.worker(burst=True).run()
        options |= {"request_key": f"{WICKED}2"}
        made["waiting"] = await tasks["good"].options(**options, requires={WICKED: WICKED}).submit(WICKED)
        apart = {"dedup": None, "request_key": None}
        made["stopped"] = await tasks["good"].options(**options | apart, delay=60).submit(WICKED)
        await app.jobs.handle(made["stopped"].id).cancel(by=WICKED)
        made["again"] = await app.jobs.handle(made["bad"].id).rerun(by=WICKED)
        await app.queues.pause("mail", by=WICKED)
        await app.keys.create("ops", ["read"], customer=WICKED)
        await app.webhooks.add("https://example.com/x", description=WICKED, customer=WICKED)
        return {name: str(one.id) for name, one in made.items()} | {"batch": str(batch.id)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    path = tmp_path_factory.mktemp("wicked") / "jobs.db"
    return path, asyncio.run(filled(f"sqlite:///{path}"))


def commands(ids: dict[str, str]) -> Iterator[list[str]]:
    for words in ("jobs", "failures", "audit", "stats", "queues", "workers", "keys", "webhooks", "batches", "doctor"):
        yield [words]
    yield ["batch", ids["batch"]]
    for name in ("good", "bad", "plain", "waiting", "stopped", "again"):
        yield ["show", ids[name]]
        yield ["explain", ids[name]]
    yield ["logs", ids["good"]]
    for name in ("good", "bad", "plain", "stopped"):
        yield ["watch", ids[name]]


SHOWING = ("show", "explain", "watch", "logs", "jobs", "failures", "audit", "keys", "webhooks")


def test_nothing_is_obeyed_by_whoever_reads_a_pipe(store: tuple[Path, dict[str, str]]) -> None:
    path, ids = store
    showing = set[str]()
    for words in commands(ids):
        for more in ([], ["--json"]):
            done = CliRunner().invoke(cli, [*words, *more, "--url", f"sqlite:///{path}"], prog_name="headrace")
            said = done.stdout + done.stderr
            assert "(unexpected;" not in said, (words, said)
            assert list(raw_in(said)) == [], words
            if more and words[0] != "watch":
                json.loads(done.stdout)
            if not more and SPELLED[:20] in said:
                showing.add(words[0])
    assert showing >= {*SHOWING} - {"keys", "explain"}, showing


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_nothing_is_obeyed_by_a_terminal(size: tuple[int, int], store: tuple[Path, dict[str, str]]) -> None:
    path, ids = store
    typed = {" ".join(words): [*words, "--url", "{url}"] for words in commands(ids)}
    for name, seen in type_all(typed, size=size, store=path).items():
        assert [one for one in (*OBEYED, *TURNS) if one in seen.text] == [], name
        assert "unexpected;" not in seen.text, name
        assert [line for line in seen.lines if line.startswith("2026-01-01 00:00:00 error: forged")] == [], name


def job_of(store: tuple[Path, dict[str, str]], name: str) -> Job:
    path, ids = store

    async def read() -> Job:
        async with App(f"sqlite:///{path}") as app:
            return await app.jobs.get(ids[name])

    return asyncio.run(read())


@pytest.mark.parametrize("terminal", [False, True])
def test_the_feed_says_it_on_one_line(
    terminal: bool,
    store: tuple[Path, dict[str, str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "is_terminal", lambda: terminal)
    for name in ("good", "bad", "plain"):
        feed._viewer(State())(Changed(jobs=(job_of(store, name),), dropped=0))
    said = capsys.readouterr().out
    assert list(raw_in(said)) == []
    assert len(said.splitlines()) == 3
    feed._viewer(State(json=True))(Changed(jobs=(job_of(store, "bad"),), dropped=0))
    said = capsys.readouterr().out
    assert list(raw_in(said)) == []
    assert json.loads(said)["error"]["type"] == WICKED


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_line_of_the_log_is_one_line(style: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told = log_output.Teller(State(), style)
    log = logging.getLogger("headrace.requirements")
    with told.logs(verbose=False):
        log.warning("no worker is alive, and jobs of %r require %s", "a", WICKED)
        try:
            raise ValueError(WICKED)
        except ValueError:
            log.exception("it failed: %s", WICKED)
        told.say(WICKED)
        told("event", WICKED, fact=WICKED)
    said = capsys.readouterr().err
    assert list(raw_in(said)) == []
    lines = said.splitlines()
    today = datetime.now(UTC).strftime("%H")
    assert len(lines) == 4
    if style == "json":
        # Spelled out already, if an App is open in this process.
        kept = (WICKED, printable(WICKED))
        assert [any(text in json.loads(line)["message"] for text in kept) for line in lines] == [True] * 4
    else:
        assert all(line[:2].isdigit() and line[2] == ":" for line in lines), today


def test_errors_and_warnings_are_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    console.warn(WICKED)
    console.complain(WICKED)
    console.say(WICKED)
    console.tell(WICKED)
    console.echo(WICKED)
    console.console().print(WICKED)
    found = capsys.readouterr()
    assert list(raw_in(found.out + found.err)) == []
    done = CliRunner().invoke(cli, ["jobs", "--status", WICKED], prog_name="headrace")
    assert done.exit_code == 2
    assert list(raw_in(done.output)) == []
    done = CliRunner().invoke(cli, [WICKED], prog_name="headrace")
    assert list(raw_in(done.output)) == []


def test_words_in_brackets_are_no_styles(store: tuple[Path, dict[str, str]], capsys: Any) -> None:
    console.console().print("[/bold] [red]")
    assert capsys.readouterr().out == "[/bold] [red]\n"
