"""Leases and tokens: only what was signed with a secret that is believed, for this key and namespace, counts."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.auth.tokens import (
    JobLease,
    Secrets,
    SigningSecret,
    lease_text,
    read_lease,
    read_token,
    secret_id,
    token_text,
)

JOB, WORKER, OTHER = (UUID(int=n) for n in (1, 2, 3))
ONE, TWO, THREE = (SigningSecret(name, name.encode() * 8) for name in ("one1", "two2", "tri3"))
KNOWN = Secrets((ONE,))
LEASE = JobLease(JOB, 7, WORKER)


def test_a_lease_is_read_as_it_was_given() -> None:
    text = lease_text(KNOWN, "headrace", "hr_abc", LEASE)
    assert read_lease(KNOWN, "headrace", "hr_abc", text) == LEASE
    assert text == lease_text(KNOWN, "headrace", "hr_abc", LEASE), "always the same, so that a repeat is answered alike"


def test_a_token_is_read_as_it_was_given() -> None:
    text = token_text(KNOWN, "headrace", None, WORKER)
    assert read_token(KNOWN, "headrace", None, text) == WORKER


@pytest.mark.parametrize(("namespace", "key"), [("headrace", "hr_xyz"), ("headrace", None), ("other", "hr_abc")])
def test_it_is_void_for_another_key_or_namespace(namespace: str, key: str | None) -> None:
    assert read_lease(KNOWN, namespace, key, lease_text(KNOWN, "headrace", "hr_abc", LEASE)) is None
    assert read_token(KNOWN, namespace, key, token_text(KNOWN, "headrace", "hr_abc", WORKER)) is None


def test_a_key_named_like_no_key_is_another_one() -> None:
    assert read_lease(KNOWN, "headrace", "", lease_text(KNOWN, "headrace", None, LEASE)) is None


def test_fields_do_not_run_into_each_other() -> None:
    text = lease_text(KNOWN, "ab", "c", LEASE)
    assert read_lease(KNOWN, "a", "bc", text) is None


def test_a_token_is_no_lease_and_a_lease_no_token() -> None:
    lease, token = lease_text(KNOWN, "headrace", None, LEASE), token_text(KNOWN, "headrace", None, WORKER)
    assert read_token(KNOWN, "headrace", None, lease) is None
    assert read_lease(KNOWN, "headrace", None, token) is None
    assert read_lease(KNOWN, "headrace", None, "hrl" + token.removeprefix("hrw")) is None
    assert read_token(KNOWN, "headrace", None, "hrw" + lease.removeprefix("hrl")) is None


def test_the_secret_before_the_last_is_not_believed() -> None:
    text = lease_text(KNOWN, "headrace", None, LEASE)
    rotated = KNOWN.rotated(TWO)
    assert read_lease(rotated, "headrace", None, text) == LEASE, "it may be in use"
    assert secret_id(lease_text(rotated, "headrace", None, LEASE)) == "two2"
    assert read_lease(rotated.rotated(THREE), "headrace", None, text) is None
    assert read_lease(KNOWN.rotated(TWO, forget=True), "headrace", None, text) is None


def test_a_secret_of_the_same_id_with_other_bytes_counts_for_nothing() -> None:
    text = lease_text(Secrets((SigningSecret("one1", b"guessed"),)), "headrace", None, LEASE)
    assert read_lease(KNOWN, "headrace", None, text) is None


@given(st.integers(0, 10_000), st.characters())
def test_no_letter_can_be_changed(place: int, letter: str) -> None:
    text = lease_text(KNOWN, "headrace", "hr_abc", LEASE)
    place %= len(text)
    changed = text[:place] + letter + text[place + 1 :]
    assert changed == text or read_lease(KNOWN, "headrace", "hr_abc", changed) is None


@given(st.text(max_size=400))
def test_whatever_is_sent_is_read_or_refused(text: str) -> None:
    assert read_lease(KNOWN, "headrace", None, text) is None
    assert read_token(KNOWN, "headrace", None, text) is None
    assert read_lease(KNOWN, "headrace", None, f"hrl.one1.{text}.{text}") is None


def test_it_is_not_shown() -> None:
    assert "one1one1" not in repr(KNOWN)
