"""Policies: how long to wait, whether to try again, and what cannot be a policy."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.lifecycle.retry import Retry, error_names
from headrace.core.times import seconds
from headrace.errors import ConfigError


class Custom(ConnectionError):
    pass


def delays(policy: Retry, count: int = 10) -> list[float]:
    return [policy.delay(n, 0.0) for n in range(count)]


def test_the_defaults_are_those_of_the_lifecycle_page() -> None:
    policy = Retry()
    assert (policy.max_retries, policy.max_attempts, policy.jitter) == (3, 4, True)
    assert delays(Retry(jitter=False)) == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_fixed_and_listed_delays_are_taken_as_given() -> None:
    assert delays(Retry(backoff="fixed", initial=7, jitter=False), 3) == [7, 7, 7]
    assert delays(Retry(backoff=[5, 15, 30], jitter=False), 5) == [5, 15, 30, 30, 30]
    assert delays(Retry(backoff=[timedelta(minutes=10), 3600], jitter=False), 3) == [600, 3600, 3600]
    assert delays(Retry(backoff="fixed", initial=900, jitter=False), 1) == [900]


def test_growth_can_be_steered() -> None:
    policy = Retry(initial=timedelta(seconds=1), factor=10, cap=timedelta(minutes=1), jitter=False)
    assert delays(policy, 4) == [1, 10, 60, 60]
    assert delays(Retry(factor=1, jitter=False), 3) == [2, 2, 2]


def test_the_default_cap_grows_with_the_first_delay() -> None:
    assert delays(Retry(initial=3600, jitter=False), 3) == [3600, 3600, 3600]
    assert delays(Retry(initial=200, jitter=False), 3) == [200, 300, 300]
    assert Retry(initial=timedelta(hours=1)).cap == 3600


def test_a_cap_below_the_first_delay_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"cap must be at least initial \(3600 s\), not 60 s.*leave cap out"):
        Retry(initial=3600, cap=60)
    assert Retry(initial=60, cap=60).cap == 60
    # These delays do not grow, so that no cap shortens them.
    assert delays(Retry(backoff="fixed", initial=3600, cap=60, jitter=False), 1) == [3600]
    assert Retry(backoff=[3600], cap=60).cap == 60


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True), st.sampled_from(["exponential", "fixed"]))
def test_jitter_stays_between_half_and_the_whole(n: int, chance: float, backoff: Any) -> None:
    whole = Retry(backoff=backoff, jitter=False).delay(n, chance)
    assert whole <= 300
    assert whole * 0.5 <= Retry(backoff=backoff).delay(n, chance) <= whole


def test_jitter_is_spread_by_chance() -> None:
    assert [Retry().delay(1, chance) for chance in (0, 0.5, 0.75)] == [2.0, 3.0, 3.5]


def test_an_error_answers_to_its_own_and_its_bases_names() -> None:
    names = error_names(Custom)
    assert names[:2] == ("Custom", f"{__name__}.Custom")
    assert {"ConnectionError", "builtins.ConnectionError", "OSError", "Exception"} <= set(names)
    assert not {"BaseException", "object"} & set(names)


@pytest.mark.parametrize(
    ("policy", "error", "allowed"),
    [
        (Retry(), Custom, True),
        (Retry(retry_on=[Custom]), Custom, True),
        (Retry(retry_on=[OSError]), Custom, True),
        (Retry(retry_on=["OSError"]), Custom, True),
        (Retry(retry_on=["builtins.OSError"]), Custom, True),
        (Retry(retry_on=[ValueError, "KeyError"]), Custom, False),
        (Retry(give_up_on=[OSError]), Custom, False),
        (Retry(give_up_on=["Custom"]), Custom, False),
        (Retry(give_up_on=[Custom]), OSError, True),
        (Retry(retry_on=[Custom], give_up_on=[OSError]), Custom, False),
        (Retry(retry_on=[OSError], give_up_on=["Custom"]), Custom, False),
        (Retry(retry_on=[OSError], give_up_on=["Custom"]), ConnectionError, True),
    ],
)
def test_deny_wins(policy: Retry, error: type[BaseException], allowed: bool) -> None:
    assert policy.allows(error_names(error)) is allowed


@pytest.mark.parametrize(
    "options",
    [
        {"max_retries": -1},
        {"max_retries": True},
        {"max_retries": 1.5},
        {"backoff": "linear"},
        {"backoff": []},
        {"backoff": [1, -1]},
        {"backoff": [float("nan")]},
        {"initial": -1},
        {"initial": float("inf")},
        {"initial": 1e12},
        {"initial": "2"},
        {"initial": True},
        {"factor": 0.5},
        {"factor": float("inf")},
        {"factor": True},
        {"cap": float("nan")},
        {"retry_on": "ValueError"},
        {"retry_on": [int]},
        {"give_up_on": ValueError},
        {"give_up_on": [ValueError()]},
    ],
    ids=str,
)
def test_what_cannot_be_a_policy_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Retry(**options)


@pytest.mark.parametrize("policy", [Retry(), Retry(0, backoff=[1, 2.5]), Retry(backoff="fixed", give_up_on=[OSError])])
def test_a_policy_survives_being_stored(policy: Retry) -> None:
    stored = msgspec.json.encode(policy)
    assert msgspec.json.decode(stored, type=Retry) == policy
    assert hash(policy) == hash(msgspec.json.decode(stored, type=Retry))


def test_seconds_are_numbers_or_spans() -> None:
    assert seconds(3, "x") == 3.0
    assert seconds(timedelta(minutes=1), "x") == 60.0
    for bad in (-1, float("nan"), float("inf"), 1e12, timedelta.max, timedelta(seconds=-1), "1", None, True):
        with pytest.raises(ConfigError, match="the thing"):
            seconds(bad, "the thing")  # type: ignore[arg-type]


@pytest.mark.parametrize("backoff", [5, None, {1, 2}, iter([1]), b"a", {"a": 1}, range(0), "no"])
def test_a_backoff_that_is_no_list_is_refused_and_says_what_is_accepted(backoff: Any) -> None:
    with pytest.raises(ConfigError, match=r"backoff must (be 'exponential', 'fixed', a list|name from 1 to 100)"):
        Retry(backoff=backoff)


async def _waits(retry: int, error: Exception) -> float:
    return 1.0


@pytest.mark.parametrize("backoff", [lambda n: n, lambda a, b, c: 1, lambda: 1, int, _waits])
def test_a_function_that_could_not_be_called_is_refused(backoff: Any) -> None:
    with pytest.raises(ConfigError, match=r"backoff is `def name\(retry: int, error: Exception\) -> float`"):
        Retry(backoff=backoff)


def by_hand(retry: int, error: Exception) -> float:
    return 2.0**retry


def test_a_function_is_kept_out_of_what_is_stored() -> None:
    policy = Retry(7, backoff=by_hand, jitter=False)
    assert (policy.function, policy.by_function, policy.backoff) == (by_hand, True, "exponential")
    stored = msgspec.json.decode(msgspec.json.encode(policy), type=Retry)
    packed = msgspec.msgpack.decode(msgspec.msgpack.encode(policy), type=Retry)
    for copied in (stored, packed, pickle.loads(pickle.dumps(policy))):
        assert copied == policy
        assert hash(copied) == hash(policy)
        assert (copied.function, copied.by_function) == (None, True), (
            "whoever runs the job knows that there is a function"
        )
        assert delays(copied, 3) == [2, 4, 8]
    assert Retry().function is None
    assert Retry() != Retry(backoff=by_hand)
    assert "by_hand" not in repr(policy)


def test_a_policy_of_an_earlier_version_has_no_function() -> None:
    text = b'{"max_retries":1,"backoff":"fixed","initial":1,"factor":2,"cap":9,"jitter":true,"retry_on":[],'
    text += b'"give_up_on":[]}'
    assert not msgspec.json.decode(text, type=Retry).by_function


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        (Retry(retry_on=[KeyError]), None),
        (Retry(retry_on=["TimeoutError"], give_up_on=[KeyError]), None),
        (Retry(give_up_on=[TimeoutError]), "TimeoutError"),
        (Retry(give_up_on=["TIMEOUT"]), "TIMEOUT"),
        (Retry(give_up_on=["timeout"]), "timeout"),
        (Retry(give_up_on=["Timeout"]), "Timeout"),
        (Retry(give_up_on=[OSError, Exception, "httpx.TimeoutException"]), None),
    ],
)
def test_only_giving_up_on_a_time_out_rules_out_its_retry(policy: Retry, named: str | None) -> None:
    assert policy.timeout_objection() == (None if named is None else f"give_up_on names {named}")


def test_what_a_policy_names_has_a_bound() -> None:
    assert Retry(backoff=[1] * 100, retry_on=["E"] * 100).backoff == (1.0,) * 100
    for odd in ({"backoff": [1] * 101}, {"retry_on": ["E"] * 101}, {"give_up_on": ["x" * 513]}, {"factor": 10**400}):
        with pytest.raises(ConfigError, match=next(iter(odd))):
            Retry(**odd)
