"""Webhooks as they are kept: whom they match, when they are switched off, and what may be said of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from headrace.core.defaults import MAX_WEBHOOK_FAILURES
from headrace.core.job import Spec
from headrace.core.webhooks.delivery import QUEUE, TASK
from headrace.core.webhooks.subscription import (
    Credentials,
    KeptSecret,
    Webhook,
    Wish,
    checked_bearer,
    checked_names,
    checked_secret,
    checked_url,
    checked_wish,
    failed,
    rotated,
    secret_of,
    succeeded,
)
from headrace.core.webhooks.target import EVENTS, GROUPS
from headrace.errors import ConfigError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOOK = Webhook(id="wh_1", url="https://example.com/", created_at=NOW)
SECRET = secret_of(b"0123456789abcdef01234567")


def spec(**fields: Any) -> Spec:
    return Spec(**{"task": "resize", "created_at": NOW, "queue": "images", **fields})


@pytest.mark.parametrize(
    ("wants", "matches"),
    [
        ({}, True),
        ({"tasks": ("resize",)}, True),
        ({"tasks": ("other",)}, False),
        ({"queues": ("images",), "tasks": ("resize",)}, True),
        ({"queues": ("mail",), "tasks": ("resize",)}, False),
        ({"customer": "acme"}, False),
        ({"off_at": NOW}, False),
    ],
)
def test_a_subscription_wants_what_it_says(wants: dict[str, Any], matches: bool) -> None:
    assert replace(HOOK, **wants).wants(spec()) is matches


def test_one_of_a_customer_is_told_of_that_customers_jobs_alone() -> None:
    mine = replace(HOOK, customer="acme")
    assert mine.wants(spec(customer="acme"))
    assert not mine.wants(spec(customer="other"))
    assert HOOK.wants(spec(customer="acme"))


def test_nobody_is_told_of_deliveries() -> None:
    assert not HOOK.wants(spec(task=TASK))
    assert not HOOK.wants(spec(queue=QUEUE))


def test_ten_failures_in_a_row_switch_it_off_and_it_says_why() -> None:
    hook = HOOK
    for _ in range(MAX_WEBHOOK_FAILURES - 1):
        hook = failed(hook, NOW, "HTTP 500")
    assert hook.on
    off = failed(hook, NOW, "HTTP 502")
    assert not off.on
    assert off.off_because == "10 deliveries in a row failed; the last: HTTP 502"
    assert failed(succeeded(hook), NOW, "HTTP 500").failures == 1


def test_one_that_says_it_is_gone_is_switched_off_at_once_but_not_an_address_of_jobs() -> None:
    assert not failed(HOOK, NOW, "410", at_once=True).on
    named = replace(HOOK, of_jobs=True)
    for _ in range(MAX_WEBHOOK_FAILURES + 1):
        named = failed(named, NOW, "HTTP 500", at_once=True)
    assert named.on


def test_a_rotated_secret_signs_beside_the_new_one_for_a_while() -> None:
    kept, later = Credentials((KeptSecret("a"),)), NOW + timedelta(hours=1)
    twice = rotated(rotated(kept, KeptSecret("b"), NOW, later), KeptSecret("c"), NOW, later + timedelta(hours=1))
    assert twice.signing(NOW) == ["c", "b", "a"]
    assert twice.signing(later) == ["c", "b"]
    assert rotated(twice, KeptSecret("d"), later, later).signing(later) == ["d", "b"]


def test_secrets_are_not_shown() -> None:
    kept = Credentials((KeptSecret("whsec_abc"),), "token")
    wish = Wish("https://user.example/?t=1", EVENTS, "whsec_abc", "token")
    for text in (repr(kept), repr(kept.secrets), repr(wish)):
        assert not any(part in text for part in ("whsec", "token", "t=1"))


def test_both_spellings_of_a_wish() -> None:
    ours = {"url": "https://a.example/x", "events": ["progress"], "bearer": "abc"}
    page = {
        "webhook_url": "https://a.example/x",
        "events": ["progress"],
        "authentication": {"type": "bearer_token", "token": "abc"},
    }
    assert checked_wish(ours) == checked_wish(page) == Wish("https://a.example/x", ("progress",), None, "abc")
    assert checked_wish("https://a.example/x") == Wish("https://a.example/x", GROUPS["status_change"])
    assert checked_wish(checked_wish(ours)) == checked_wish(page)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "must be a URL"),
        ({}, "url is missing"),
        ({"url": "https://a.example", "colour": 1}, "no field 'colour'"),
        ({"url": "https://a.example", "webhook_url": "https://b.example"}, "different things"),
        ({"url": "https://a.example", "bearer": "x", "authentication": {"token": "y"}}, "different things"),
        ({"url": "https://a.example", "authentication": {"type": "basic", "token": "y"}}, "bearer_token"),
        ({"url": "https://a.example", "authentication": "x"}, "authentication"),
        ({"url": "https://a.example", "secret": "hunter2"}, "whsec_"),
        ({"url": "https://a.example", "events": ["nothing"]}, "nothing"),
    ],
)
def test_what_cannot_be_a_wish_is_named(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        checked_wish(given)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example",
        "a.example",
        "https://",
        "https://a.example/#part",
        "https://me:secret@a.example/",
        "https://a.example:99999/",
        "https://[::1",
        "https://a.example/ x",
        "https://a.example/\n",
        "https://a.example/" + "x" * 3000,
        3,
    ],
)
def test_addresses_that_are_refused(url: Any) -> None:
    with pytest.raises(ConfigError) as told:
        checked_url(url)
    assert "secret@" not in str(told.value)


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX-Evil: 1", "ä", 3, "x" * 5000])
def test_tokens_that_are_no_header_are_refused_and_not_repeated(token: Any) -> None:
    with pytest.raises(ConfigError) as told:
        checked_bearer(token)
    assert not token or str(token) not in str(told.value)


@pytest.mark.parametrize("secret", ["", "abc", "whsec_!!", "whsec_YWJj", secret_of(b"x" * 65), None])
def test_secrets_that_are_none(secret: Any) -> None:
    with pytest.raises(ConfigError, match="24 to 64 bytes"):
        checked_secret(secret)


def test_a_secret_is_taken_as_it_is() -> None:
    assert checked_secret(SECRET) == SECRET


def test_names_are_a_sequence() -> None:
    assert checked_names(["a", "b", "a"], "tasks") == ("a", "b")
    with pytest.raises(ConfigError, match="tasks"):
        checked_names("ab", "tasks")


def test_it_is_stored_and_read_again() -> None:
    whole = replace(HOOK, events=("progress",), failures=3, off_at=NOW, customer="acme")
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Webhook) == whole
