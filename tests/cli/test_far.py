"""Every command works far from the store, through a hub: a new one that is not tried here fails the test."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from headrace.cli.root import cli
from tests.cli.conftest import QUICK, Shell
from tests.cli.patience import until_sync
from tests.hub.process import Running, started

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(300),
]

NEAR = {"demo"}
"""It has a store of its own, wherever it runs."""


def commands(of: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that can be typed, with those below it."""
    if not isinstance(of, click.Group):
        yield " ".join(path)
        return
    context = click.Context(of)
    for name in of.list_commands(context):
        found = of.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))
    if path and of.invoke_without_command:
        yield " ".join(path)


class Far:
    """A machine that has the code, the address of a hub, and a key in its settings file; not the store."""

    def __init__(self, shell: Shell, hub: Running, key: str, folder: Path) -> None:
        self._shell, self.hub, self.key, self.folder = shell, hub, key, folder
        self.url = f"hub+{hub.address}"
        folder.mkdir()
        (folder / "quick.py").write_text(QUICK)
        (folder / "headrace.toml").write_text(f'key = "{key}"\nurl = "{self.url}"\n')
        self.tried: set[str] = set()

    def __call__(self, *words: str, code: int = 0) -> Result:
        """Type a command there."""
        name = " ".join(words[:2]) if " ".join(words[:2]) in ALL else words[0]
        self.tried.add(name)
        url = () if "--no-url" in words else ("--url", self.url)
        result = self._shell(*(word for word in words if word != "--no-url"), *url, code=code)
        assert self.key[11:] not in result.output, f"{name} shows the key"
        return result

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code).stdout)

    def id(self, *words: str) -> str:
        """The id of a job that is submitted like this."""
        return self("submit", *words).stdout.strip()

    def job(self, id: str) -> Any:
        return self.json("show", id)

    def is_at(self, id: str, status: str) -> Callable[[], bool]:
        return lambda: bool(self.job(id)["status"] == status)


ALL = frozenset(commands())


@pytest.fixture
def far(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    key = shell.json("keys", "create", "far", "--scope", "engine", "--url", shell.url)["text"]
    with started(tmp_path, "hub", "--no-webhooks", "--url", shell.url) as hub:
        made = Far(shell, hub, key, tmp_path / "far")
        shell.folder = made.folder  # where processes are started
        monkeypatch.chdir(made.folder)
        monkeypatch.delitem(sys.modules, "quick", raising=False)
        yield made


def test_every_command_works(far: Far, shell: Shell) -> None:
    # -- jobs, and a worker that runs them
    worker = shell.start("worker", "quick:app", "--queues", "default,images", "--url", far.url)
    assert far("run", "add", "a=1", "b=2", "--wait", "60").stdout.strip() == "3"
    done = far.json("jobs", "--status", "completed")["items"][0]["id"]
    bad = far.id("boom")
    until_sync(far.is_at(bad, "failed"))
    told = far.id("chatty")
    far("watch", told)
    assert "line 0 of attempt 2" in far("logs", told).output
    assert "completed" in far("show", done).output
    assert "boom" in far("explain", bad).output
    assert bad[-6:] in far("failures").output
    assert done in far("jobs", "--no-url").output, "the url of the settings file"
    # -- acts
    idle = [far.id("add", "a=1", "--queue", "idle") for _ in range(3)]
    later = far.id("add", "a=1", "--delay", "1h", "--queue", "idle")
    far("postpone", later, "--to", "2h", "--yes")
    far("run-now", later, "--yes")
    assert far.job(later)["status"] == "queued"
    far("move", idle[0], "--to", "elsewhere", "--yes")
    far("reprioritise", idle[0], "--to", "90", "--yes")
    assert (far.job(idle[0])["queue"], far.job(idle[0])["priority"]) == ("elsewhere", 90)
    far("resolve", idle[1], "--result", "7", "--yes")
    assert far.job(idle[1])["result"] == 7
    far("cancel", idle[2], "--yes")
    far("retry", idle[2], "--yes")
    assert far.job(idle[2])["status"] == "queued"
    far("rerun", done, "--yes")
    far("discard", bad, "--yes")
    # -- many at once
    (far.folder / "batched.py").write_text(BATCHED)
    program = [sys.executable, "batched.py", far.url]
    batch = subprocess.run(program, cwd=far.folder, check=True, capture_output=True, text=True).stdout.strip()
    assert "2 completed" in far("batch", batch, "--wait").output
    assert batch[:8] in far("batches").output
    far.tried.add("feed")
    feed = shell.start("feed", "--url", far.url, "--json")
    until_sync(lambda: bool(far.id("add", "a=5") and select.select([feed.stdout or 0], [], [], 0.2)[0]))
    feed.send_signal(signal.SIGINT)
    feed.wait(30)
    # -- settings
    far("queues", "set", "idle", "--priority", "3")
    far("queues", "pause", "idle")
    assert "paused" in far("queues").output
    far("queues", "resume", "idle")
    far("queues", "reset", "idle")
    far("queues", "forget", "nobody", code=3)
    far("limits", "set", "add", "--max-concurrency", "5")
    assert "5" in far("limits").output
    far("limits", "reset", "add")
    far("limits", "forget", "nobody", code=3)
    far("rates", "set", "api", "10", "--per", "1m")
    assert "api" in far("rates").output
    far("rates", "reset", "api")
    far("rates", "forget", "api", code=3)
    far("schedules", "create", "nightly", "add", "a=1", "--cron", "0 2 * * *", "--queue", "idle")
    assert "nightly" in far("schedules").output
    assert "add" in far("schedules", "show", "nightly").output
    assert "02:00" in far("schedules", "next", "nightly").output
    far("schedules", "pause", "nightly")
    far("schedules", "resume", "nightly")
    far("schedules", "trigger", "nightly")
    far("schedules", "delete", "nightly")
    # -- the hub's own
    far("keys", "create", "ci", "--scope", "read")
    assert "ci" in far("keys").output
    assert "far" in far("keys", "list").output
    far("keys", "revoke", "ci")
    far("keys", "rotate")
    far("keys", "replace-secret")
    hook = far.json("webhooks", "add", "https://hooks.example/x", "--event", "retrying")["webhook"]["id"]
    assert hook in far("webhooks").output
    assert hook in far("webhooks", "list").output
    far("webhooks", "show", hook)
    far("webhooks", "off", hook)
    far("webhooks", "on", hook)
    far("webhooks", "rotate", hook)
    far("webhooks", "test", hook)
    delivery = far.json("webhooks", "deliveries")["items"][0]["id"]
    far("webhooks", "redeliver", delivery, code=4)
    far("webhooks", "delete", hook)
    # -- everything at once
    assert "submitted" in far("stats").output
    far("charts")
    assert "add" in far("tasks").output
    far("tasks", "pause", "add")
    far("tasks", "resume", "add")
    far("scale")
    assert "pause" in far("audit").output
    far("prune")
    assert "up to date" in far("migrate").output
    assert "is headrace" in far("doctor", code=1).output
    far("verify")
    # -- workers and hubs
    far("worker", "quick:app", "--burst", "--queues", "elsewhere")
    assert far.job(idle[0])["status"] == "completed"
    [one] = [one["info"] for one in far.json("workers") if "default" in (one["info"]["queues"] or ())]
    far("workers", "drain", one["id"])
    assert worker.wait(60) == 0
    assert one["id"][-8:] in far("workers", "gone").output
    for command in (("hub",), ("up", "quick:app")):
        far.tried.add(command[0])
        with started(far.folder, *command, "--url", far.url) as nearer:
            until_sync(lambda: _asks(nearer, far.key))
    assert far.tried | NEAR == ALL, "try the new command here, or say why it cannot be used far away"
    assert not list(far.folder.glob("*.db")), "there is no store here"


BATCHED = """
import asyncio
from quick import add, app

async def main():
    async with app, app.batch() as batch:
        batch.add(add.draft(1))
        batch.add(add.draft(2))
    print(batch.id)

with app.override(url=__import__("sys").argv[1]):
    asyncio.run(main())
"""


def _asks(hub: Running, key: str) -> bool:
    request = urllib.request.Request(f"{hub.address}/rpc/hello", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bool(json.loads(answer.read())["store"] == "hub")


def test_a_key_that_is_none_is_said_without_showing_it(far: Far, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_KEY", "hr_wrong8901secretsecret")
    for words in (("jobs",), ("worker", "quick:app", "--burst"), ("submit", "add", "a=1")):
        said = shell(*words, "--url", far.url, code=5).output
        assert "secretsecret" not in said
        assert "headrace keys create NAME --scope engine" in " ".join(said.split())
    said = " ".join(shell("doctor", "--url", far.url, code=1).output.split())
    assert "secretsecret" not in said
    assert "HEADRACE_KEY" in said


def test_nobody_there_is_said_in_one_line(shell: Shell) -> None:
    said = " ".join(shell("jobs", "--url", "hub+http://127.0.0.1:1", code=5).output.split())
    assert "the hub at http://127.0.0.1:1 cannot be reached" in said
