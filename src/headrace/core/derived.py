"""Ids that are computed: the same job by the same id, however often it is decided to make it."""

from __future__ import annotations

import hashlib
from uuid import UUID

__all__ = ["derived_id"]

_STAMP = (1 << 128) - (1 << 80)


def derived_id(source: UUID, text: str) -> UUID:
    """The id of what follows from a job, told apart by a text.

    It has the time of its source in front, as a UUIDv7 has its own: what is made together lies together.
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    number = (source.int & _STAMP) | (int.from_bytes(digest) & ~_STAMP)
    number = number & ~(0xF << 76) | 7 << 76
    return UUID(int=number & ~(0b11 << 62) | 0b10 << 62)
