"""Every command on a real terminal: it ends as it should, fits the screen, and cuts nothing that matters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from headrace.cli.root import cli
from headrace.core.status import Status
from tests.support.screens.terminal import CTRL_C, SIZES, Seen, Size
from tests.support.screens.typist import ROOT, type_all

pytestmark = pytest.mark.timeout(240)


class Case(NamedTuple):
    """A command line, how it ends on a full store and on an empty one, and what must be read there in full.

    Names in braces are ids of jobs in the full store, of which the empty one knows nothing.
    """

    words: str
    full: int = 0
    empty: int = 0
    shows: str = ""
    press: tuple[tuple[str, str], ...] = ()


APP = "--app tests.support.programs.full_store:app"

CASES: Mapping[str, Case] = {
    "demo": Case("demo --url {url}", press=(("Ctrl-C ends the demo", CTRL_C),)),
    "worker": Case(f"worker {APP} --grace 0", press=(("at once", CTRL_C),)),
    "hub": Case("hub --port 0 --no-webhooks", press=(("hub at http", CTRL_C),)),
    "up": Case(f"up {APP} --port 0 --no-webhooks --grace 0", press=(("at once", CTRL_C),)),
    "submit": Case("submit resize image=x.png"),
    "run": Case("run nobody_serves_this --wait 50ms", full=1, empty=1),
    "jobs": Case("jobs", shows=" ".join(Status) + " {completed:short} nobody_serves_this (retries exhausted)"),
    "show": Case("show {failed}", empty=3, shows="{failed} retries exhausted ValueError: there is no 30th of February"),
    "show: running": Case("show {running}", empty=3, shows="{running} 40 %"),
    "show: waiting": Case("show {waiting}", empty=3, shows="{waiting} {scheduled:short}"),
    "show: family": Case("show {family}", empty=3, shows="{family} 4 more"),
    "watch": Case("watch {completed}", empty=3, shows="cat.png"),
    "logs": Case("logs {talkative}", empty=3, shows="sent to customer 7"),
    "explain": Case("explain {queued}", empty=3, shows="first in its queue"),
    "explain: running": Case("explain {running}", empty=3, shows="reading chapter 4 of 10"),
    "explain: worker": Case(
        "explain --worker {worker}", empty=3, shows="of tasks that it does not have: 'nobody_serves_this'."
    ),
    "batch": Case("batch {batch}", empty=3, shows="{batch} 1 completed 1 failed nightly_report"),
    "batches": Case("batches", shows="{batch} ended"),
    "cancel": Case("cancel {scheduled} {completed}", full=4, empty=3, shows="{scheduled} {completed}"),
    "retry": Case("retry {failed}", empty=3, shows="{failed} queued"),
    "retry: asked": Case("retry --task doomed", press=((r"\[y/N\]", "y\n"),), shows="2 of 2 retried"),
    "rerun": Case("rerun {failed}", empty=3),
    "discard": Case("discard {failed}", empty=3, shows="{failed} discarded"),
    "postpone": Case("postpone {scheduled} --to 2h", empty=3, shows="{scheduled} scheduled"),
    "run-now": Case("run-now {scheduled} {completed}", full=4, empty=3, shows="{scheduled} queued {completed}"),
    "move": Case("move {scheduled} --to mail", empty=3, shows="{scheduled} scheduled"),
    "reprioritise": Case("reprioritise {scheduled} --to 90", empty=3, shows="{scheduled} scheduled"),
    "resolve": Case("resolve {queued} --result 7", empty=3, shows="{queued} completed"),
    "failures": Case("failures", shows="doomed: ValueError"),
    "feed": Case("feed", press=(("Ctrl-C ends it", CTRL_C),)),
    "charts": Case("charts --since 1h"),
    "audit": Case("audit", shows="queue:images pause ada on build-7 schedule:monthly"),
    "stats": Case("stats", shows=" ".join(Status)),
    "stats: words": Case(
        "stats --words emprops", shows="PENDING QUEUED IN_PROGRESS COMPLETED FAILED waiting scheduled"
    ),
    "jobs: words": Case("jobs --words jobmaster", shows="Processing HeldOnMaster"),
    "scale": Case("scale", shows="mail default images paused needed"),
    "queues": Case("queues", shows="mail default images never served paused by ada on build-7 14 completed"),
    "queues pause": Case("queues pause mail", shows="mail"),
    "queues resume": Case("queues resume images", shows="images"),
    "queues set": Case("queues set mail --priority 5", shows="mail"),
    "queues reset": Case("queues reset mail", shows="mail"),
    "queues forget": Case("queues forget mail", empty=3, shows="mail"),
    "limits": Case("limits", shows="send_newsletter resize provider"),
    "limits set": Case("limits set resize --max-concurrency 2", shows="resize 2"),
    "limits reset": Case("limits reset resize"),
    "limits forget": Case("limits forget resize", empty=3, shows="resize"),
    "rates": Case("rates", shows="provider 100 sliding"),
    "rates set": Case("rates set provider 5 --per 60", shows="provider 5"),
    "rates reset": Case("rates reset provider", shows="provider"),
    "rates forget": Case("rates forget provider", empty=3, shows="provider"),
    "schedules": Case("schedules", shows="nightly_report 0 2 * * 1-5 Europe/Berlin poll_inbox refresh_cache active"),
    "schedules create": Case("schedules create tidy resize image=x.png --every 1h", shows="tidy"),
    "schedules show": Case("schedules show nightly_report", empty=3, shows="0 2 * * 1-5 Europe/Berlin"),
    "schedules next": Case("schedules next nightly_report", empty=3, shows="Europe/Berlin"),
    "schedules pause": Case("schedules pause nightly_report", empty=3, shows="nightly_report"),
    "schedules resume": Case("schedules resume nightly_report", empty=3, shows="nightly_report"),
    "schedules trigger": Case("schedules trigger nightly_report", empty=3),
    "schedules delete": Case("schedules delete monthly", empty=3, shows="monthly"),
    "tasks": Case("tasks", shows="send_newsletter never served image, width?"),
    "tasks pause": Case("tasks pause send_newsletter", shows="send_newsletter"),
    "tasks resume": Case("tasks resume send_newsletter", shows="send_newsletter"),
    "workers": Case("workers", shows="build-7.internal.example images mail"),
    "workers gone": Case("workers gone", shows="stopped in good order"),
    "workers drain": Case("workers drain {worker}", empty=3, shows="{worker:short}"),
    "keys": Case("keys", shows="nightly import shop hr_ read, submit customer-123 never"),
    "keys list": Case("keys list", shows="nightly import shop hr_ read, submit customer-123 never"),
    "keys create": Case("keys create ci --scope read,submit --expires 90d", shows="hr_ keep it now"),
    "keys revoke": Case("keys revoke shop", empty=3, shows="shop is revoked"),
    "keys rotate": Case("keys rotate", shows="leases"),
    "keys replace-secret": Case("keys replace-secret", shows="HEADRACE_SECRET"),
    "webhooks": Case("webhooks", shows="{webhook} off completion"),
    "webhooks list": Case("webhooks list", shows="{webhook} hooks.example.com"),
    "webhooks show": Case("webhooks show {webhook}", empty=3, shows="{webhook} resize"),
    "webhooks add": Case("webhooks add https://hooks.example.com/new --event completion", shows="whsec_ keep"),
    "webhooks on": Case("webhooks on {webhook}", empty=3, shows="{webhook} on"),
    "webhooks off": Case("webhooks off {webhook}", empty=3, shows="{webhook} off"),
    "webhooks rotate": Case("webhooks rotate {webhook}", empty=3, shows="whsec_ {webhook}"),
    "webhooks test": Case("webhooks test {webhook}", empty=3, shows="queued"),
    "webhooks deliveries": Case("webhooks deliveries --webhook {webhook}", shows="headrace.deliver"),
    "webhooks redeliver": Case("webhooks redeliver {delivery}", full=4, empty=3),
    "webhooks delete": Case("webhooks delete {doomed_webhook}", empty=3, shows="removed"),
    "prune": Case("prune", shows="pruned"),
    "migrate": Case("migrate", shows="up to date"),
    "doctor": Case("doctor", full=1, shows="nobody_serves_this queues resume images"),
    "verify": Case("verify"),
}
"""By the command they type; what comes after a colon tells cases of one command apart."""


def paths(group: click.Group, parent: click.Context) -> Iterator[tuple[str, click.Command]]:
    for word in group.list_commands(parent):
        command = group.get_command(parent, word)
        assert command is not None
        ctx = click.Context(command, info_name=word, parent=parent)
        yield ctx.command_path.removeprefix("headrace "), command
        if isinstance(command, click.Group):
            yield from paths(command, ctx)


COMMANDS = dict(paths(cli, click.Context(cli, info_name="headrace")))


def test_every_command_has_a_case() -> None:
    assert {name.partition(":")[0] for name in CASES} == set(COMMANDS)


SHOWN = {"show", "watch", "explain", "submit", "run", "stats", "queues", "batch", "webhooks test", "webhooks redeliver"}
"""Commands that show statuses, and choose no jobs by them."""


def test_every_command_about_jobs_takes_words() -> None:
    options = {name: {one for param in command.params for one in param.opts} for name, command in COMMANDS.items()}
    choosing = {name for name, found in options.items() if "--status" in found}
    assert {"jobs", "feed", "failures", "retry", "webhooks deliveries"} <= choosing
    named = {"schedules trigger", "webhooks add"}
    assert {name for name, found in options.items() if "--words" in found} == choosing | SHOWN | named


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A store that has seen everything, and ids in it."""
    store = tmp_path_factory.mktemp("full") / "jobs.db"
    command = [sys.executable, "-m", "tests.support.programs.full_store", f"sqlite:///{store}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ids = dict(pair.split("=") for pair in done.stdout.split())
    return store, ids | {f"{name}:short": id[-8:] for name, id in ids.items()}


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with nothing in it."""
    store = tmp_path_factory.mktemp("empty") / "jobs.db"
    command = [sys.executable, "-m", "headrace", "migrate", "--url", f"sqlite:///{store}"]
    subprocess.run(command, capture_output=True, check=True)
    return store


def filled(text: str, ids: Mapping[str, str]) -> str:
    for name, id in ids.items():
        text = text.replace(f"{{{name}}}", id)
    return text


def typed(ids: Mapping[str, str]) -> dict[str, list[str]]:
    found = {name: filled(case.words, ids).split() for name, case in CASES.items()}
    return {name: words if "{url}" in words else [*words, "--url", "{url}"] for name, words in found.items()}


def wrong(seen: Seen, size: Size, code: int) -> Iterator[str]:
    """What is wrong with a screen, whatever command it shows."""
    if seen.code != code:
        yield f"ended with {seen.code}, not {code}"
    if any(line.startswith(("Traceback", "Task exception", "future:")) or "unexpected;" in line for line in seen.lines):
        yield "broke down"
    if wide := [line for line in seen.lines if len(line) > size[0]]:
        yield f"wider than {size[0]} columns: {wide[0]!r}"


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_every_command_fits_the_terminal_on_a_full_store(size: Size, full: tuple[Path, dict[str, str]]) -> None:
    store, ids = full
    press = {name: case.press for name, case in CASES.items() if case.press}
    faults = {}
    helps = {f"{name} --help": [*name.split(), "--help"] for name in COMMANDS}
    for name, seen in type_all(typed(ids) | helps, size=size, store=store, press=press).items():
        case = CASES.get(name, Case(""))
        found = list(wrong(seen, size, case.full))
        text = " ".join(" ".join(seen.lines).split())
        found += [f"does not show {word}" for word in filled(case.shows, ids).split() if word not in text]
        if found:
            faults[name] = f"{'; '.join(found)}\n{seen}"
    assert not faults, "\n\n".join(f"{name}: {fault}" for name, fault in faults.items())


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_every_command_fits_the_terminal_on_an_empty_store(size: Size, empty: Path) -> None:
    names = ("batch", "family", "talkative", "worker", "delivery", "webhook", "doomed_webhook", *Status)
    nowhere = dict.fromkeys(names, "01990000-0000-7000-8000-0000deadbeef")
    press = {name: case.press for name, case in CASES.items() if case.press and "asked" not in name}
    found = type_all(typed(nowhere), size=size, store=empty, press=press)
    faults = {}
    for name, seen in found.items():
        if broken := list(wrong(seen, size, CASES.get(name, Case("")).empty)):
            faults[name] = f"{'; '.join(broken)}\n{seen}"
        if not "".join(seen.lines).strip():
            faults[name] = "says nothing"
    assert not faults, "\n\n".join(f"{name}: {fault}" for name, fault in faults.items())
