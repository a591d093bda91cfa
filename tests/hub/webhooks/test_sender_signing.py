"""Signatures, as the public library for receivers checks them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from headrace.core.webhooks.subscription import Credentials, KeptSecret, secret_of
from headrace.hub.webhooks.sender import headers_of, signature

OLD, NEW = secret_of(b"o" * 32), secret_of(b"n" * 24)
BODY = '{"type":"job.completed","data":{"text":"ä€"}}'.encode()


def headers(*secrets: KeptSecret, at: datetime | None = None) -> dict[str, str]:
    kept, now = Credentials(secrets, "tok"), datetime.now(UTC)
    return headers_of(kept, kept.signing(now), "msg_1", int((at or now).timestamp()), BODY)


def test_the_public_library_believes_a_message() -> None:
    assert Webhook(NEW).verify(BODY, headers(KeptSecret(NEW)))["type"] == "job.completed"


def test_both_secrets_are_believed_while_one_is_replaced() -> None:
    rotating = headers(KeptSecret(NEW), KeptSecret(OLD, datetime.now(UTC) + timedelta(hours=1)))
    for secret in (NEW, OLD):
        Webhook(secret).verify(BODY, rotating)
    over = headers(KeptSecret(NEW), KeptSecret(OLD, datetime.now(UTC)))
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(BODY, over)


def test_another_body_id_time_or_secret_is_not_believed() -> None:
    good = headers(KeptSecret(NEW))
    tampered = [{**good, "webhook-id": "msg_2"}, {**good, "webhook-timestamp": str(int(good["webhook-timestamp"]) + 1)}]
    for bad in tampered:
        with pytest.raises(WebhookVerificationError):
            Webhook(NEW).verify(BODY, bad)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY + b" ", good)
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(BODY, good)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY, headers(KeptSecret(NEW), at=datetime.now(UTC) - timedelta(hours=1)))


def test_it_is_the_signature_that_the_library_makes() -> None:
    assert signature(NEW, "msg_1", int(datetime.now(UTC).timestamp()), BODY) == Webhook(NEW).sign(
        "msg_1", datetime.now(UTC), BODY.decode()
    )


def test_without_a_secret_nothing_is_signed_and_a_token_is_shown() -> None:
    plain = headers()
    assert "webhook-signature" not in plain
    assert plain["authorization"] == "Bearer tok"
