"""What the operations of these rooms answer alike: lists, and warnings about names that nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

import msgspec

from headrace.core.bounds import COUNT, NAME
from headrace.hub.problems import Problem

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.limit_settings import Named

__all__ = ["Amount", "Listed", "Name", "no_such", "warnings_about"]

T = TypeVar("T")


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """All there is."""

    items: tuple[T, ...]


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME)]
"""Of a queue, a task, a rate or a schedule."""
Amount = Annotated[int, msgspec.Meta(ge=1, le=COUNT)]
"""How many at once, or in a span of time."""


async def warnings_about(app: App, of: Named, name: str, rates: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What may be a slip: a name that nobody knows, and rates that nobody has defined."""
    strange = await app.strange_name(of, name)
    undefined = await app.undefined_rates() if rates else {}
    named = [f"{undefined[rate]}: it limits nothing until it is set" for rate in rates if rate in undefined]
    return (*([strange] if strange else ()), *named)


def no_such(what: str, detail: str) -> Problem:
    """The answer to a name that stands for nothing."""
    return Problem(404, "not-found", f"There is no such {what}", detail)
