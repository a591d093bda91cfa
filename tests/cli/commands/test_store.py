"""The store as a whole."""

from __future__ import annotations

import json
import re
import socket

from tests.cli.conftest import Shell
from tests.cli.patience import until_sync


def test_stats_balance_the_books(shell: Shell) -> None:
    shell.submit("add", "a=1")
    shell.submit("add", "a=1", "--delay", "1h")
    shell.work()
    found = shell.json("stats", "--url", shell.url)
    assert found["statuses"]["completed"] == 1
    books = {name: count for name, count in found["ledger"].items() if count}
    assert books == {"accepted": 2, "live": 1, "ended": 1, "completed": 1}
    text = shell("stats", "--url", shell.url).stdout
    assert "ever ended: 1 completed" in text
    assert "submitted  2 = 1 live + 1 ended + 0 pruned" in text
    assert "accepted" not in text  # a status: one word, one meaning on a screen
    assert "2 submitted, all accounted for" in shell("doctor", "--url", shell.url).stdout


def test_tasks_are_known_after_a_worker_was_there(shell: Shell) -> None:
    assert "no tasks" in shell("tasks", "--url", shell.url).stderr
    shell.work()
    found = {task["name"]: task for task in shell.json("tasks", "--url", shell.url)}
    assert set(found) >= {"add", "resize", "boom", "slow"}
    assert (found["resize"]["queue"], found["resize"]["priority"], found["resize"]["here"]) == ("images", 70, False)
    assert "image, width?" in shell("tasks", "--app", "quick").stdout


def test_workers_are_listed(shell: Shell) -> None:
    assert "no workers" in shell("workers", "--url", shell.url).stderr
    assert shell.json("workers", "--url", shell.url) == []


def test_a_worker_of_another_process_is_drained(shell: Shell) -> None:
    process = shell.start("worker", "quick:app")
    until_sync(lambda: shell.json("workers", "--url", shell.url) != [])
    [row] = shell.json("workers", "--url", shell.url)
    id = row["info"]["id"]
    told = shell("workers", "--explain", "--url", shell.url).stdout
    assert told.startswith(f"worker {id} on {row['info']['host']} (pid {process.pid}): It is alive, and 0 of its")
    [said] = shell.json("workers", "--explain", "--url", shell.url)
    assert (said["id"], [fact["code"] for fact in said["facts"]]) == (id, ["worker_free", "nothing_queued"])
    said = shell("workers", "drain", id[-6:], "--url", shell.url).stderr
    assert said == f"worker {id} on {row['info']['host']} (pid {process.pid}) was asked to leave; it holds 0 jobs\n"
    assert process.wait(45) == 0
    assert shell.json("workers", "--url", shell.url) == []
    shell("workers", "drain", id[-6:], "--url", shell.url, code=3)


def test_prune_and_migrate_say_what_they_did(shell: Shell) -> None:
    assert shell.json("prune", "--url", shell.url) == {"pruned": 0}
    assert shell("prune", "--url", shell.url).stdout == "0 pruned\n"
    assert shell.json("migrate", "--plan", "--url", shell.url) == {"pending": []}
    assert "up to date" in shell("migrate", "--url", shell.url).stderr


def test_migrating_what_is_no_store_ends_like_every_command_there(shell: Shell) -> None:
    (shell.folder / "folder").mkdir()
    said = shell("jobs", "--url", "sqlite:///folder", code=5).stderr
    assert shell("migrate", "--url", "sqlite:///folder", code=5).stderr == said
    assert shell("migrate", "--plan", "--url", "sqlite:///folder", code=5).stderr == said
    shell("migrate", "--url", "sqlite:///jobs.db?speed=11", code=2)


def test_a_queue_is_set_by_customer(shell: Shell) -> None:
    shell.submit("add", "a=1", "--customer", "acme", "--queue", "gpu")
    result = shell("queues", "set", "gpu", "--by-customer", "--app", "quick")
    assert result.stderr.startswith("queue gpu has lines by customer\n")
    assert shell.json("queues", "--app", "quick")[0]["by_customer"] is True
    assert "by customer" in shell("queues", "--app", "quick").stdout
    shell("queues", "set", "gpu", "--not-by-customer", "--app", "quick")
    assert shell.json("queues", "--app", "quick")[0]["by_customer"] is False


def test_queues_come_in_pages(shell: Shell) -> None:
    for name in ("a", "b", "c"):
        shell("queues", "set", name, "--priority", "1", "--url", shell.url)
    first = shell("queues", "--limit", "2", "--json", "--url", shell.url)
    assert [one["name"] for one in json.loads(first.stdout)] == ["a", "b"]
    [cursor] = re.findall(r"more: --cursor (\S+)", first.stderr)
    rest = shell("queues", "--limit", "2", "--cursor", cursor, "--json", "--url", shell.url)
    assert ([one["name"] for one in json.loads(rest.stdout)], "more" in rest.stderr) == (["c"], False)
    assert "cursor" in shell("queues", "--cursor", "x", "--url", shell.url, code=2).stderr


def test_queues_are_paused_resumed_and_set(shell: Shell) -> None:
    shell.submit("resize", "image=x")
    shell("queues", "pause", "images", "--url", shell.url)
    [queue] = shell.json("queues", "--url", shell.url)
    assert queue["paused_by"].endswith(f" on {socket.gethostname()}")
    shell("queues", "pause", "images", "--by", "anna", "--url", shell.url)
    [queue] = [queue for queue in shell.json("queues", "--url", shell.url) if queue["name"] == "images"]
    assert (queue["paused"], queue["priority"], queue["counts"]) == (True, 0, {"queued": 1})
    assert "paused by anna" in shell("queues", "--url", shell.url).stdout
    shell.work()
    assert shell.json("stats", "--url", shell.url)["statuses"] == {"queued": 1}
    shell("queues", "set", "images", "--priority", "5", "--url", shell.url)
    [queue] = shell.json("queues", "resume", "images", "--url", shell.url)
    assert (queue["paused"], queue["priority"]) == (False, 5)
    assert "images" in shell("queues", "--url", shell.url).stdout
    shell.work()
    assert shell.json("stats", "--url", shell.url)["statuses"] == {"completed": 1}
    shell("queues", "set", "images", "--url", shell.url, code=2)


def test_tasks_are_paused_and_resumed(shell: Shell) -> None:
    shell.submit("resize", "image=x")
    said = shell("tasks", "pause", "resize", "--by", "anna", "--url", shell.url)
    assert "task resize is paused: headrace tasks resume opens it again" in said.stderr
    shell.work()
    assert shell.json("stats", "--url", shell.url)["statuses"] == {"queued": 1}
    assert "paused by anna" in shell("tasks", "--url", shell.url).stdout
    assert shell.json("tasks", "resume", "resize", "--url", shell.url) == {"task": "resize", "paused": False}
    shell.work()
    assert shell.json("stats", "--url", shell.url)["statuses"] == {"completed": 1}
    assert "paused" not in shell("tasks", "--url", shell.url).stdout
    assert "knows a task named 'resise'" in shell("tasks", "pause", "resise", "--url", shell.url).stderr


def test_schedules_are_created_paused_triggered_and_deleted(shell: Shell) -> None:
    assert "no schedules" in shell("schedules", "--url", shell.url).stderr
    words = ["schedules", "create", "nightly", "add", "a=1", "--cron", "0 2 * * *", "--tz", "Europe/Berlin"]
    [made] = shell.json(*words, "--app", "quick")
    assert (made["name"], made["task"], made["paused"], made["source"]) == ("nightly", "add", False, "dynamic")
    assert made["next_fire"]
    [paused] = shell.json("schedules", "pause", "nightly", "--url", shell.url)
    assert paused["paused"]
    assert "paused" in shell("schedules", "--url", shell.url).stdout
    [resumed] = shell.json("schedules", "resume", "nightly", "--url", shell.url)
    assert not resumed["paused"]
    job = shell.json("schedules", "trigger", "nightly", "--url", shell.url)
    assert (job["task"], job["payload"]) == ("add", {"a": 1})
    assert shell.json("schedules", "delete", "nightly", "--url", shell.url) == {"deleted": "nightly"}
    shell("schedules", "trigger", "nightly", "--url", shell.url, code=3)


def test_a_schedule_needs_one_rule(shell: Shell) -> None:
    shell("schedules", "create", "x", "add", "a=1", "--app", "quick", code=2)
    shell("schedules", "create", "x", "add", "a=1", "--cron", "bad", "--app", "quick", code=2)
    shell("schedules", "create", "x", "add", "a=1", "--every", "5m", "--tz", "UTC", "--app", "quick", code=2)
    shell("schedules", "create", "x", "add", "a=1", "--every", "5m", "--app", "quick")


def test_doctor_finds_nothing_wrong(shell: Shell) -> None:
    checks = shell.json("doctor", "--app", "quick")
    assert {check["level"] for check in checks} <= {"ok", "warn"}
    assert {"python", "headrace", "apsw", "clock", "app", "settings"} <= {check["name"] for check in checks}
    assert "✓" in shell("doctor", "--app", "quick").stdout


def test_doctor_says_what_is_wrong(shell: Shell) -> None:
    assert "✗ store" in shell("doctor", "--url", "sqlite:////no/such/folder/x.db", code=1).stdout
    assert "✗ app" in shell("doctor", "--app", "nowhere", code=1).stdout
