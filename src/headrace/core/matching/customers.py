"""Customers: to which one a key belongs, and the jobs of which ones a worker takes.

Dedup, request and concurrency keys of a job with a customer are that customer's own.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256

import msgspec

from headrace.core.defaults import MAX_KEY_CHARACTERS
from headrace.core.job import Spec

__all__ = ["REQUIREMENT", "Customers", "dedup_of", "own", "turn_of"]

REQUIREMENT = "headrace.customer"
"""What profiles of a customer's jobs require in a store, which makes them differ from those of the task alone."""

_MARK = "\x1f"
"""Begins every key that is not stored as given."""


def own(customer: str | None, key: str) -> str:
    """Return the key as stores keep and compare it: another one for each customer, and for jobs without one.

    Whatever customers and keys are called, no two pairs have the same text: a key that is stored as given never begins
    with the mark, and the length of the customer says where the key begins. What would be too long for an index is
    stored as its digest.
    """
    if customer is None:
        return _MARK + key if key.startswith(_MARK) else key
    text = f"{_MARK}{len(customer)}:{customer}{key}"
    return (
        text
        if len(text) <= MAX_KEY_CHARACTERS
        else f"{_MARK}#{sha256(text.encode(errors='surrogatepass')).hexdigest()}"
    )


def dedup_of(spec: Spec) -> str | None:
    """Return the dedup key that no second live job of the task may hold; None: it has none."""
    return None if spec.dedup is None else own(spec.customer, spec.dedup)


def turn_of(spec: Spec) -> str | None:
    """Return the concurrency key by which jobs of the task are limited and take turns; None: it has none."""
    return None if spec.concurrency_key is None else own(spec.customer, spec.concurrency_key)


class Customers(msgspec.Struct, frozen=True, kw_only=True):
    """The customers of the jobs that a worker takes, from queues that are set ``by_customer``."""

    allow: frozenset[str] | None = None
    """Only jobs of these customers, and none without one; None: of all."""
    deny: frozenset[str] = frozenset()
    """No jobs of these customers, even if they are allowed."""
    strict: bool = False
    """Only jobs that name a customer; and while the worker holds jobs of one, no other customer's."""

    def admits(self, customer: str | None, held: Collection[str | None] = ()) -> bool:
        """Return whether the worker may take a job of this customer; ``held``: the customers of the jobs it holds."""
        if customer in self.deny or (self.allow is not None and customer not in self.allow):
            return False
        if not self.strict:
            return True
        return customer is not None and all(other in (None, customer) for other in held)
