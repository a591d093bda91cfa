"""The command line as a whole: help, exit codes, errors, the reference."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headrace import errors
from headrace.cli import exit_codes, reference, root
from headrace.cli.root import cli
from headrace.core.status import Status
from tests.cli.conftest import Shell
from tests.cli.records import ID, job

pytestmark = pytest.mark.timeout(240)


LISTED = root._listed()


@pytest.mark.parametrize("name", list(LISTED))
def test_every_listed_command_exists_and_has_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, click.Command)
    assert command.name == name
    assert LISTED[name].endswith(".")
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert "--json" in result.output
    assert "--url" in result.output


def test_help_imports_neither_rich_nor_an_engine() -> None:
    program = """
import atexit, sys
import headrace.cli
atexit.register(lambda: print([name for name in ('rich', 'apsw') if name in sys.modules]))
sys.argv = ['headrace', '--help']
headrace.cli.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.JobNotFound(ID), 3),
        (errors.UnknownTask("x"), 3),
        (errors.TransitionRefused(job(), "retry"), 4),
        (errors.Duplicate(job()), 4),
        (errors.Unavailable("gone"), 5),
        (errors.Overloaded("full"), 5),
        (errors.SchemaTooNew("newer"), 5),
        (errors.SchemaTooOld("older"), 5),
        (errors.ConfigError("bad"), 2),
        (errors.MissingExtra("postgresql://", "asyncpg", "postgres"), 2),
        (errors.InvalidPayload("add", "no", "a"), 2),
        (errors.JobFailed(job(status=Status.FAILED), None), 1),
        (errors.ResultTimeout(ID, 1.0), 1),
        (RuntimeError("bug"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.UsageError("no"), 2),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_codes.code_of(error) == code


def test_an_error_is_one_line_with_its_remedy() -> None:
    assert exit_codes.sentence(errors.Unavailable("cannot open\n  jobs.db")) == (
        "cannot open jobs.db — check --url and that the store is up: headrace doctor"
    )
    assert exit_codes.sentence(RuntimeError("bug")).startswith("RuntimeError: bug (unexpected")


@pytest.mark.parametrize("words", [["nonsense"], ["jobs", "--status", "asleep"], ["submit"], ["jobs", "--limit", "0"]])
def test_bad_usage_ends_with_2(shell: Shell, words: list[str]) -> None:
    result = shell(*words, code=2)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_an_unreachable_store_ends_with_5(shell: Shell) -> None:
    result = shell("jobs", "--url", "sqlite:////no/such/folder/jobs.db", code=5)
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1


def test_an_unreadable_database_is_told_in_one_line(shell: Shell) -> None:
    Path("jobs.db").write_text("this is not a database, however long one looks at it. " * 100)
    result = shell("stats", "--url", shell.url, code=5)
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_server_that_is_not_there_is_told_in_one_line(shell: Shell) -> None:
    result = shell("stats", "--url", "postgresql://127.0.0.1:1/nothing", code=5)
    assert result.stderr.startswith("error: PostgreSQL is out of reach")
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("url", ["nonsense", "mystery://x", "postgresql://x/y?speed=11", "sqlite:///x?speed=11"])
def test_a_bad_url_ends_with_2(shell: Shell, url: str) -> None:
    result = shell("jobs", "--url", url, code=2)
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "jobs.db"], "--url must be a URL such as sqlite:///jobs.db, not 'jobs.db'"),
        (["--url", "jobs.db", "--app", "quick"], "--url must be a URL such as sqlite:///jobs.db, not 'jobs.db'"),
        (["--url", ""], "--url must be a URL such as sqlite:///jobs.db, not ''"),
        (["--app", ""], "'' names no App"),
    ],
)
def test_a_flag_that_names_nothing_is_not_taken_for_one_left_out(shell: Shell, words: list[str], said: str) -> None:
    assert said in shell("jobs", *words, code=2).stderr
    assert not (shell.folder / "headrace.db").exists()


def test_sigterm_ends_a_command_though_interrupts_are_ignored(shell: Shell) -> None:
    # A shell starts what it puts in the background with SIGINT ignored.
    command = 'trap \'\' INT; exec "$0" -m headrace watch "$1" --app quick'
    with subprocess.Popen(
        ["/bin/sh", "-c", command, sys.executable, shell.submit("add", "a=1")], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert "queued" in child.stdout.readline()
        child.terminate()
        assert child.wait(60) == 130


def test_a_stream_that_cannot_show_a_sign_is_shown_the_rest(shell: Shell) -> None:
    command = [sys.executable, "-m", "headrace", "show", shell.submit("add", "a=1"), "--app", "quick"]
    ascii = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ascii)
    assert (done.returncode, done.stderr) == (0, "")
    assert "priority 50" in done.stdout


def test_debug_shows_the_traceback(shell: Shell) -> None:
    assert "Traceback" in shell("jobs", "--url", "nonsense", "--debug", code=2).stderr
    assert "Traceback" in shell("--debug", "jobs", "--url", "nonsense", code=2).stderr


def test_shared_flags_may_stand_before_the_command(shell: Shell) -> None:
    result = shell("--json", "--url", shell.url, "jobs")
    assert result.stdout == '{"items":[],"cursor":null}\n'


def test_a_reader_that_has_seen_enough_gets_no_complaint(shell: Shell) -> None:
    for _ in range(3):
        shell.submit("add", "a=1")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "headrace", "jobs", "--url", shell.url]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.stderr == ""


def test_the_reference_names_every_command_and_option() -> None:
    page = reference()

    def check(command: click.Command, ctx: click.Context) -> None:
        assert ctx.command_path in page
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                assert param.opts[0] in page
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                sub = command.get_command(ctx, name)
                assert sub is not None
                check(sub, click.Context(sub, info_name=name, parent=ctx))

    check(cli, click.Context(cli, info_name="headrace"))
    assert "--parent-fd" not in page
    assert "\n### headrace queues pause\n" in page


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["jbos"], "jobs"), (["workr"], "worker"), (["run_now"], "run-now"), (["queues", "paus"], "pause")],
)
def test_a_mistyped_command_is_asked_about(shell: Shell, words: list[str], meant: str) -> None:
    assert f"No such command {words[-1]!r}. Did you mean {meant!r}?" in shell(*words, code=2).stderr


def test_help_lists_every_command_once_and_in_groups(shell: Shell) -> None:
    listed = shell("--help").stdout.partition("\nRun:\n")[2]
    groups = {part.partition(":\n")[0]: part for part in f"Run:\n{listed}".split("\n\n")}
    assert list(groups) == list(root._HEADINGS.values())
    named = [line.split()[0] for line in listed.splitlines() if line.startswith("  ") and line[2] != " "]
    assert named == list(LISTED)
    assert "  retry " in groups["Change jobs"]
    assert "  doctor " in groups["Keep the store in order"]
