"""``limits``, ``rates`` and what queues may have at once."""

from __future__ import annotations

import sqlite3

from tests.cli.conftest import Shell


def test_limits_are_set_and_reset(shell: Shell) -> None:
    assert "no task is limited" in shell("limits", "--url", shell.url).stderr
    [made] = shell.json("limits", "set", "add", "--max-concurrency", "3", "--rate", "api", "--url", shell.url)
    facts = {"task": "add", "max_concurrency": 3, "max_per_key": None, "rates": ["api"], "live": True}
    assert made == facts | {"unreadable": None}
    [made] = shell.json("limits", "set", "add", "--max-per-key", "1", "--url", shell.url)
    assert (made["max_concurrency"], made["max_per_key"]) == (3, 1)
    assert "live" in shell("limits", "--url", shell.url).stdout
    assert shell.json("limits", "reset", "add", "--url", shell.url) == []
    shell("limits", "set", "add", "--url", shell.url, code=2)
    assert (
        "max_concurrency" in shell("limits", "set", "add", "--max-concurrency", "0", "--url", shell.url, code=2).stderr
    )


def test_rates_are_set_and_reset(shell: Shell) -> None:
    assert "no rates" in shell("rates", "--url", shell.url).stderr
    made = shell.json("rates", "set", "api", "100", "--per", "60", "--kind", "sliding", "--url", shell.url)
    assert made == {"api": {"limit": 100, "per": 60.0, "kind": "sliding", "keyed": False}}
    assert "sliding" in shell("rates", "--url", shell.url).stdout
    made = shell.json("rates", "set", "api", "50", "--keyed", "--url", shell.url)  # the rest stays as it is
    assert made == {"api": {"limit": 50, "per": 60.0, "kind": "sliding", "keyed": True}}
    made = shell.json("rates", "set", "api", "50", "--per", "1", "--kind", "bucket", "--not-keyed", "--url", shell.url)
    assert made == {"api": {"limit": 50, "per": 1.0, "kind": "bucket", "keyed": False}}
    assert "give --per" in shell("rates", "set", "new", "50", "--url", shell.url, code=2).stderr
    assert shell.json("rates", "reset", "api", "--url", shell.url) == {}
    assert "limit" in shell("rates", "set", "api", "0", "--per", "60", "--url", shell.url, code=2).stderr


def test_a_queue_is_limited_and_reset(shell: Shell) -> None:
    [queue] = shell.json("queues", "set", "images", "--max-concurrency", "2", "--rate", "api", "--url", shell.url)
    assert (queue["max_concurrency"], queue["rates"], queue["priority"]) == (2, ["api"], 0)
    shell("queues", "pause", "images", "--url", shell.url)
    assert shell.json("queues", "reset", "images", "--url", shell.url) == []
    shell("queues", "set", "images", "--url", shell.url, code=2)


LIMITED = """
from headrace import Rate

app.queue("images", max_concurrency=1)
app.rate("api", Rate(5, per=60))

@app.task(queue="images", max_concurrency=2, rates=["api"])
async def draw() -> None: ...
"""


def test_what_code_said_is_forgotten_until_a_worker_says_it_again(shell: Shell) -> None:
    plain = (shell.folder / "quick.py").read_text()
    (shell.folder / "quick.py").write_text(plain + LIMITED)
    shell.start("worker", "quick:app", "--burst").communicate(timeout=60)
    for group, name, said in (
        ("limits", "draw", "task draw has no limits any more; a worker whose code still has it stores it again"),
        ("queues", "images", "queue images has no stored settings any more; a worker whose code still has it"),
        ("rates", "api", "rate api is deleted; a worker whose code still has it stores it again when it starts"),
    ):
        shell(group, "reset", name, "--url", shell.url)  # what the code once said stays
        assert shell.json(group, "--url", shell.url)
        assert said in shell(group, "forget", name, "--url", shell.url).stderr
        assert not shell.json(group, "--url", shell.url)
        told = shell(group, "forget", name, "--url", shell.url, code=3).stderr
        assert f"nothing is stored about {'limits of a task' if group == 'limits' else f'a {group[:-1]}'}" in told
        assert f"{name!r}: headrace {group} lists what is" in told
    shell.start("worker", "quick:app", "--burst").communicate(timeout=60)
    assert shell.json("rates", "forget", "api", "--url", shell.url) == {"forgotten": "api"}
    assert shell.json("limits", "forget", "draw", "--url", shell.url) == {"forgotten": "draw"}
    assert shell.json("queues", "forget", "images", "--url", shell.url) == {"forgotten": "images"}


def test_a_rate_that_is_forgotten_while_somebody_keeps_to_it_is_told_of(shell: Shell) -> None:
    shell("rates", "set", "api", "5", "--per", "60", "--url", shell.url)
    assert "nobody" not in shell("limits", "set", "add", "--rate", "api", "--app", "quick").stderr
    said = shell("rates", "forget", "api", "--url", shell.url).stderr
    undefined = "nobody has defined the rate 'api' that task 'add' must keep to: it limits nothing until"
    assert undefined in said
    assert undefined in shell("limits", "set", "add", "--rate", "api", "--url", shell.url).stderr
    assert "the rate 'pai' that queue 'q'" in shell("queues", "set", "q", "--rate", "pai", "--url", shell.url).stderr


def test_a_name_that_nobody_knows_is_said_and_taken_for_what_it_is(shell: Shell) -> None:
    shell.submit("add", "a=1")
    for words, who in (
        (["queues", "pause", "tpyo"], "no job, no live worker and no code knows a queue named 'tpyo'"),
        (["queues", "resume", "tpyo"], "no job, no live worker and no code knows a queue named 'tpyo'"),
        (["queues", "set", "tpyo", "--priority", "1"], "no job, no live worker and no code knows a queue named 'tpyo'"),
        (["limits", "set", "tpyo", "--max-concurrency", "1"], "and no code knows a task named 'tpyo'"),
        (["rates", "set", "tpyo", "1", "--per", "1"], "no task, no queue and no code names the rate 'tpyo'"),
    ):
        for _ in range(2):  # having been said once makes it no better known
            said = shell(*words, "--url", shell.url).stderr
            assert f"{who}; if that is a slip, headrace {words[0]} forget tpyo takes it back" in said
        assert shell.json(*words, "--url", shell.url)
        shell(words[0], "forget", "tpyo", "--url", shell.url)
        said = shell(words[0], "reset", "tpyo", "--url", shell.url).stderr
        assert (who in said, "slip" in said) == (True, False)
    for words in (
        ["queues", "pause", "default", "--url", shell.url],
        ["queues", "pause", "images", "--app", "quick"],
        ["limits", "set", "add", "--max-concurrency", "1", "--rate", "api", "--url", shell.url],
        ["limits", "set", "resize", "--max-concurrency", "1", "--app", "quick"],
        ["rates", "set", "api", "1", "--per", "1", "--url", shell.url],
    ):
        assert "slip" not in shell(*words).stderr


def test_a_setting_of_another_version_is_told_of_where_it_would_be_listed(shell: Shell) -> None:
    with sqlite3.connect(shell.folder / "jobs.db") as store:
        for number, key in enumerate(("queue:q", "limit:add", "rate:api"), 1):
            store.execute("INSERT INTO settings VALUES (?, '7', ?)", (key, number))
        store.execute("UPDATE books SET settings_rev = 3")
    store.close()
    for group, key in (("queues", "queue:q"), ("limits", "limit:add"), ("rates", "rate:api")):
        listed = shell(group, "--url", shell.url)
        assert f"warning: the setting {key!r} is none that this version of headrace can read" in listed.stderr
        assert f"drop it with headrace {group} forget {key.partition(':')[2]}" in listed.stderr
        shell.json(group, "--url", shell.url)
        shell(group, "forget", key.partition(":")[2], "--url", shell.url)
        assert "warning" not in shell(group, "--url", shell.url).stderr
