"""``limits``, ``rates`` and what queues may have at once."""

from __future__ import annotations

from tests.cli.conftest import Shell


def test_limits_are_set_and_reset(shell: Shell) -> None:
    assert "no task is limited" in shell("limits", "--url", shell.url).stderr
    [made] = shell.json("limits", "set", "add", "--max-concurrency", "3", "--rate", "api", "--url", shell.url)
    assert made == {"task": "add", "max_concurrency": 3, "max_per_key": None, "rates": ["api"], "live": True}
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
