"""``webhooks``: added, listed, switched, tested, removed; and what was delivered."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell

ADDRESS = "https://hooks.example/jobs"


def test_a_webhook_is_added_listed_switched_and_deleted(shell: Shell) -> None:
    url = ("--url", shell.url)
    assert "no webhooks" in shell("webhooks", *url).stderr
    made = shell("webhooks", "add", ADDRESS, "--event", "completion,progress", "--task", "add", *url)
    secret = made.stdout.strip()
    assert secret.startswith("whsec_")
    assert "not shown again" in made.stderr
    for words in (("webhooks",), ("webhooks", "list")):
        [hook] = shell.json(*words, *url)
        assert (hook["url"], hook["tasks"]) == (ADDRESS, ["add"])
        assert hook["events"] == ["progress", "completed", "failed", "cancelled"]
        assert " on " in hook["created_by"]
    id = hook["id"]
    assert secret not in shell("webhooks", *url).stdout
    assert shell.json("webhooks", "show", id[:10], *url)["id"] == id, "the beginning is enough"
    assert f"webhook {id} is off" in shell("webhooks", "off", id, *url).stderr
    assert "switched off by" in shell("webhooks", "show", id, *url).stdout
    assert f"webhook {id} is on" in shell("webhooks", "on", id, *url).stderr
    assert shell.json("webhooks", "rotate", id, "--keep", "1h", *url)["secret"] != secret
    assert "is removed" in shell("webhooks", "delete", id, *url).stderr
    assert "no webhook" in shell("webhooks", "show", id, *url, code=3).stderr


def test_deliveries_are_listed_and_sent_again(shell: Shell) -> None:
    url = ("--url", shell.url)
    hook = shell.json("webhooks", "add", ADDRESS, "--event", "submitted", *url)["webhook"]["id"]
    assert "no deliveries" in shell("webhooks", "deliveries", *url).stderr
    job = shell.json("webhooks", "test", hook, *url)
    [found] = shell.json("webhooks", "deliveries", "--webhook", hook, *url)["items"]
    assert (found["id"], found["task"], found["status"]) == (job["id"], "headrace.deliver", "queued")
    assert shell.json("webhooks", "deliveries", "--status", "failed", *url)["items"] == []
    assert "headrace.deliver" in shell("webhooks", "deliveries", *url).stdout
    shell("resolve", job["id"], "--error", "no", *url)
    assert "is queued" in shell("webhooks", "redeliver", job["id"], *url).stderr
    assert shell("webhooks", "redeliver", job["id"], *url, code=4).stderr


def test_what_is_wrong_is_named_and_a_token_is_not_repeated(shell: Shell) -> None:
    url = ("--url", shell.url)
    assert "https://" in shell("webhooks", "add", "nowhere", *url, code=2).stderr
    assert "no event 'x'" in shell("webhooks", "add", ADDRESS, "--event", "x", *url, code=2).stderr
    wrong = shell("webhooks", "add", ADDRESS, "--bearer", "my secret", *url, code=2).stderr
    assert "bearer must be" in wrong
    assert "my secret" not in wrong


def test_a_webhook_has_words_of_its_own(shell: Shell) -> None:
    url = ("--url", shell.url)
    made = shell.json("webhooks", "add", "https://hooks.example/jobs", "--words", "jobmaster", *url)
    id = made["webhook"]["id"]
    assert shell.json("webhooks", "show", id, *url)["words"] == "jobmaster"
    assert shell.json("webhooks", "test", id, "--words", "osqueue", *url)["status"] == "unclaimed"
    found = shell.json("webhooks", "deliveries", "--status", "QUEUED", "--words", "emprops", *url)["items"]
    assert [one["status"] for one in found] == ["queued"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://hooks.example/jobs?token=abc", "--webhook-http lets them go to http://"),
        ("https://10.0.0.7/jobs", "--webhook-allow 10.0.0.7 would allow it"),
        ("https://localhost:8000/jobs", "--webhook-allow 127.0.0.1 would allow it"),
    ],
)
def test_an_address_that_hubs_refuse_is_warned_of_at_once(shell: Shell, address: str, said: str) -> None:
    made = shell("webhooks", "add", address, "--url", shell.url)
    assert made.stdout.startswith("whsec_"), "it is added: a hub may be started with that option"
    warning = next(line for line in made.stderr.splitlines() if said in line)
    assert "gets nothing from a hub without this option" in warning
    assert "token" not in warning
    assert "gets nothing" not in shell("webhooks", "add", ADDRESS, "--url", shell.url).stderr
