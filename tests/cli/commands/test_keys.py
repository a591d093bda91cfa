"""``keys``: made, listed, revoked."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from headrace.core.auth.api_keys import digest_of
from tests.cli.commands.test_hub import running
from tests.cli.conftest import Shell
from tests.cli.patience import until_sync


def test_a_key_is_made_listed_and_revoked(shell: Shell) -> None:
    url = ("--url", shell.url)
    made = shell("keys", "create", "shop", "--scope", "read,submit", "--customer", "acme", "--expires", "90d", *url)
    text = made.stdout.strip()
    assert text.startswith("hr_")
    assert "not shown again" in made.stderr
    assert text not in made.stderr
    bound = shell.json("keys", "create", "ci", "--scope", "submit", "--tasks", "add, resize", "--queues", "mail", *url)
    assert bound["text"].startswith(bound["key"]["prefix"])
    assert (bound["key"]["tasks"], bound["key"]["queues"]) == (["add", "resize"], ["mail"])
    for words in (("keys",), ("keys", "list")):
        ci, shop = shell.json(*words, *url)
        assert ci == bound["key"]
        assert (shop["name"], shop["prefix"], shop["customer"]) == ("shop", text[:11], "acme")
        assert (shop["scopes"], shop["used_at"]) == (["read", "submit"], None)
        assert " on " in shop["created_by"]
    seen = shell("keys", *url).stdout
    assert "in 90 d" in seen
    assert text not in seen
    assert "key shop is revoked" in shell("keys", "revoke", "shop", *url).stderr
    assert shell.json("keys", "revoke", bound["key"]["prefix"], *url) == {"revoked": "ci"}
    assert "no keys" in shell("keys", *url).stderr
    assert "no key named 'shop'" in shell("keys", "revoke", "shop", *url, code=3).stderr


def test_engine_keys_are_made_here(shell: Shell) -> None:
    made = shell.json("keys", "create", "far", "--scope", "engine", "--url", shell.url)
    assert made["key"]["scopes"] == ["engine"]


def test_what_is_wrong_is_named(shell: Shell) -> None:
    url = ("--url", shell.url)
    assert "--scope" in shell("keys", "create", "shop", *url, code=2).stderr
    assert "'fly' is no scope: they are read" in shell("keys", "create", "a", "--scope", "fly", *url, code=2).stderr
    words = ("keys", "create", "a", "--scope", "admin", "--customer", "acme")
    assert "cannot have a customer" in shell(*words, *url, code=2).stderr
    assert "expires" in shell("keys", "create", "a", "--scope", "read", "--expires", "0", *url, code=2).stderr
    shell("keys", "create", "a", "--scope", "read", *url)
    assert "there is a key named 'a'" in shell("keys", "create", "a", "--scope", "read", *url, code=2).stderr


def test_the_audit_says_who_made_it_and_keeps_no_secret(shell: Shell) -> None:
    text = shell.json("keys", "create", "shop", "--scope", "read", "--url", shell.url)["text"]
    audit = shell("audit", "--url", shell.url, "--json").stdout
    assert "key:shop" in audit
    for secret in (text, digest_of(text)):
        assert secret not in audit


def test_a_running_hub_refuses_a_key_that_is_revoked_here(shell: Shell) -> None:
    text = shell.json("keys", "create", "shop", "--scope", "read", "--url", shell.url)["text"]
    hub = running(shell, "hub", "quick:app", "--host", "0.0.0.0")
    address = hub.address.replace("0.0.0.0", "127.0.0.1")

    def status(**headers: str) -> int:
        request = urllib.request.Request(f"{address}/api/version", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    bearer = {"Authorization": f"Bearer {text}"}
    assert status() == 401
    assert status(**bearer) == 200
    until_sync(lambda: shell.json("keys", "--url", shell.url)[0]["used_at"] is not None)
    shell("keys", "revoke", "shop", "--url", shell.url)
    until_sync(lambda: status(**bearer) == 401)
    assert hub.end() == 0
    assert not [event for event in hub.events if text in str(event)]


def test_a_hub_that_others_can_reach_needs_keys(shell: Shell) -> None:
    for flags in (("--host", "0.0.0.0"), ("--proxy-headers",)):
        ended = shell("hub", "quick:app", "--port", "0", *flags, code=2)
        assert "headrace keys create NAME --scope read,submit,act,admin" in ended.stderr


def test_a_secret_is_taken_up_replaced_and_left(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    url = ("--url", shell.url)

    def told() -> tuple[str, str]:
        [found] = [one for one in shell.json("doctor", *url) if one["name"] == "secret"]
        return found["level"], found["message"]

    shell("migrate", *url)
    assert told()[0] == "ok"
    shell("keys", "rotate", *url)
    level, message = told()
    assert (level, "HEADRACE_SECRET is not set" in message, "forge" in message) == ("warn", True, True)
    monkeypatch.setenv("HEADRACE_SECRET", "one" * 20)
    assert told() == ("ok", "HEADRACE_SECRET is set; the first hub takes it up")
    shell("keys", "rotate", *url)
    made = shell.json("webhooks", "add", "https://hooks.example/", *url)
    assert told()[0] == "ok"
    monkeypatch.setenv("HEADRACE_SECRET", "two" * 20)
    level, message = shell.json("doctor", *url, code=1)[-1]["level"], told_by(shell)
    assert (level, "is not the one" in message) == ("fail", True)
    refused = shell("webhooks", "add", "https://hooks.example/", *url, code=2).stderr
    assert "headrace keys replace-secret" in refused
    assert "twotwo" not in refused
    assert shell.json("keys", "replace-secret", *url) == {"replaced": True, "webhooks": [made["webhook"]["id"]]}
    assert told()[0] == "ok"
    monkeypatch.delenv("HEADRACE_SECRET")
    assert "which is not set here" in told()[1]
    assert "is used no more" in shell("keys", "replace-secret", *url).stderr
    assert told()[0] == "warn"


def told_by(shell: Shell) -> str:
    found = shell.json("doctor", "--url", shell.url, code=1)
    return " ".join(one["message"] for one in found if one["name"] == "secret")
