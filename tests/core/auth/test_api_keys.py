"""Keys: what they allow, how they are told apart, and who may give which."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.core.auth.api_keys import (
    SCOPES,
    SHOWN_KEY_CHARACTERS,
    Permissions,
    checked_grant,
    digest_of,
    is_key,
    lacks,
    written,
)
from headrace.errors import ConfigError

NOW = datetime(2026, 1, 31, 8, tzinfo=UTC)


def grant(*scopes: str, **bounds: Any) -> Permissions:
    given: dict[str, Any] = {"customer": None, "tasks": None, "queues": None, "expires_at": None} | bounds
    return checked_grant(scopes, **given)


def test_a_key_is_known_by_its_digest_alone() -> None:
    text = written(bytes(range(32)))
    assert text == "hr_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert text not in digest_of(text)
    assert is_key(text, digest_of(text))
    for other in (text[:-1], text + "x", text[:SHOWN_KEY_CHARACTERS], "", "hr_\udc80"):
        assert not is_key(other, digest_of(text))


def test_all_of_a_digest_is_compared() -> None:
    text = written(bytes(range(32)))
    digest = digest_of(text)
    for place, one in enumerate(digest):
        other = "0" if one != "0" else "1"
        assert not is_key(text, digest[:place] + other + digest[place + 1 :]), place
        assert not is_key(text, digest[:place])
    assert not is_key(text, digest + "0")


def test_scopes_and_bounds_are_checked() -> None:
    assert grant("read", "submit", customer="acme", tasks=["add"]).tasks == frozenset({"add"})
    for scopes, bounds, said in (
        ((), {}, "needs a scope"),
        (("read", "all"), {}, "'all' is no scope"),
        (("admin",), {"customer": "acme"}, "admin reaches everybody's jobs"),
        (("read", "engine"), {"customer": "acme"}, "engine reaches everybody's jobs"),
        (("read",), {"customer": " "}, "customer"),
        (("submit",), {"tasks": []}, "tasks: name 1 to 100"),
        (("submit",), {"queues": [""]}, "each of queues"),
    ):
        with pytest.raises(ConfigError, match=said):
            grant(*scopes, **bounds)


def test_it_expires_at_its_moment() -> None:
    ends = grant("read", expires_at=NOW)
    assert not ends.has_expired(NOW - timedelta(microseconds=1))
    assert ends.has_expired(NOW)
    assert not grant("read").has_expired(NOW)


OPERATOR = grant(*(scope for scope in SCOPES if scope != "engine"))


def test_nobody_gives_what_they_lack() -> None:
    assert lacks(OPERATOR, OPERATOR) is None
    assert lacks(OPERATOR, grant("read", customer="acme", tasks=["add"], expires_at=NOW)) is None
    clerk = grant("admin", "submit", tasks=["add"], queues=["mail"], expires_at=NOW)
    assert lacks(clerk, grant("submit", tasks=["add"], queues=["mail"], expires_at=NOW)) is None
    for granter, wanted, said in (
        (OPERATOR, grant("engine"), "on the command line only"),
        (grant("admin", "engine"), grant("engine"), "on the command line only"),
        (clerk, grant("read", "act"), "the scope read and act"),
        (clerk, grant("submit", queues=["mail"]), "bound to the tasks add"),
        (clerk, grant("submit", tasks=["add", "b"], queues=["mail"]), "bound to the tasks add"),
        (clerk, grant("submit", tasks=["add"]), "bound to the queues mail"),
        (clerk, grant("submit", tasks=["add"], queues=["mail"]), "would outlast it"),
        (clerk, grant("submit", tasks=["add"], queues=["mail"], expires_at=NOW + timedelta(1)), "would outlast it"),
        (grant("read", customer="acme"), grant("read"), "one customer's"),
        (grant("read", customer="acme"), grant("read", customer="other"), "one customer's"),
    ):
        assert said in (lacks(granter, wanted) or "")
