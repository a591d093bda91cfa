"""Signatures as Standard Webhooks has them (https://www.standardwebhooks.com): HMAC-SHA256 over id, time and body."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from hashlib import sha256

from headrace.core.subscription import SECRET, Credentials

__all__ = ["headers_of", "signature"]


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """The signature of a message by one secret."""
    key = base64.b64decode(secret.removeprefix(SECRET))
    digest = hmac.new(key, f"{id}.{timestamp}.".encode() + body, sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def headers_of(
    credentials: Credentials, signing: Sequence[str], id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """The headers of a message, signed with each of these secrets, so that one can be replaced by another."""
    headers = {
        "content-type": "application/json",
        "user-agent": "headrace",
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
    }
    if signing:
        headers["webhook-signature"] = " ".join(signature(one, id, timestamp, body) for one in signing)
    if credentials.bearer is not None:
        headers["authorization"] = f"Bearer {credentials.bearer}"
    return headers
