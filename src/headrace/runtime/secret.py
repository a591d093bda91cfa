"""Secrets: bytes that nobody can guess. Ids and dice are no secrets, and are never used as such."""

from __future__ import annotations

import secrets

__all__ = ["secret_bytes"]


def secret_bytes(count: int = 32) -> bytes:
    """So many bytes that the system's own source of chance has made."""
    return secrets.token_bytes(count)
