"""Operations about the hub itself."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

import msgspec

from headrace.hub.operation import Answer, Ask, Operation

__all__ = ["VERSION_OPERATIONS", "Version"]


class Version(msgspec.Struct, frozen=True):
    """Which headrace answers."""

    headrace: str


@cache  # which reads and parses a file
def _version() -> Version:
    return Version(version("headrace"))


async def tell_version(ask: Ask) -> Answer:
    """The version of this hub."""
    return Answer(_version())


VERSION_OPERATIONS = (
    Operation(
        name="version",
        method="GET",
        path="/api/version",
        summary="Which version of headrace answers",
        scope="read",
        bounded="nothing",
        do=tell_version,
        gives={200: Version},
        answered={"headrace": "0.1.0"},
    ),
)
