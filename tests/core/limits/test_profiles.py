"""Of how many pairs of task and requirements there may be live jobs, and whose."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from headrace.core.auth.api_keys import ApiKey, StoredKey
from headrace.core.defaults import MAX_CUSTOMER_PROFILES, MAX_CUSTOMERS_PROFILES, MAX_PROFILES
from headrace.core.job import Spec
from headrace.core.limits.profiles import OURS, allowed, checked_profiles, excess, no_room, refusal, room_for, staked_by
from headrace.errors import ConfigError

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def document(customer: str | None, profiles: int | None, expires_at: datetime | None = None) -> str:
    key = ApiKey(name="k", prefix="hr_1", scopes=("submit",), customer=customer, created_at=NOW, profiles=profiles)
    key = replace(key, expires_at=expires_at)
    return msgspec.json.encode(StoredKey("digest", key)).decode()


def test_a_pair_counts_for_the_customer_of_the_job() -> None:
    assert staked_by(Spec(task="work", created_at=NOW)) is None
    assert staked_by(Spec(task="work", created_at=NOW, customer="acme")) == "acme"


def test_what_is_headraces_own_counts_for_nobody() -> None:
    assert staked_by(Spec(task="headrace.deliver", created_at=NOW, customer="acme")) == OURS
    assert staked_by(Spec(task="work", created_at=NOW, customer="acme", schedule="nightly")) == OURS
    forged = Spec(task="headrace.deliver", created_at=NOW, customer="acme", requires={"x": 1})
    assert staked_by(forged) == "acme", "nothing of ours requires anything"
    assert room_for(OURS) is None


def test_the_operator_has_room_that_customers_cannot_take() -> None:
    assert room_for("acme") == MAX_CUSTOMERS_PROFILES
    assert room_for(None) == MAX_PROFILES
    assert MAX_CUSTOMERS_PROFILES < MAX_PROFILES


def test_the_most_that_a_key_of_the_customer_says_counts() -> None:
    assert allowed("acme", [], NOW) == MAX_CUSTOMER_PROFILES
    others = [document("other", 500), document(None, None), document("acme", None), "{}", "no JSON"]
    assert allowed("acme", others, NOW) == MAX_CUSTOMER_PROFILES
    assert allowed("acme", [*others, document("acme", 3)], NOW) == 3
    assert allowed("acme", [document("acme", 3), document("acme", 7), document("acme", 5)], NOW) == 7


def test_a_key_that_has_expired_does_not_count() -> None:
    soon = NOW + timedelta(seconds=1)
    keys = [document("acme", 9, NOW), document("acme", 3, soon)]
    assert allowed("acme", keys, NOW) == 3
    assert allowed("acme", keys, soon) == MAX_CUSTOMER_PROFILES


def test_the_first_that_come_are_let_in() -> None:
    a, b, c = ("a", "{}"), ("b", "{}"), ("c", "{}")
    assert excess(set(), [a, b, a, c], 2) == {c}
    assert excess({a, b}, [a, b], 2) == set(), "what it has"
    assert excess({a, b}, [c, a], 2) == {c}
    assert excess({a, b, c}, [a, b, c], 1) == set(), "also if it has more than it may"


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "7", MAX_CUSTOMERS_PROFILES + 1])
def test_a_number_of_pairs_is_checked(value: object) -> None:
    with pytest.raises(ConfigError, match="profiles"):
        checked_profiles(value)
    assert (checked_profiles(None), checked_profiles(7)) == (None, 7)


def test_a_refusal_names_cause_and_remedy() -> None:
    assert "'acme' has live jobs of 100 different pairs" in str(refusal("acme", 100))
    assert "a key with more (profiles)" in str(refusal("acme", 100))
    assert str(MAX_PROFILES) in str(no_room(None))
    assert str(MAX_CUSTOMERS_PROFILES) in str(no_room("acme"))
