"""What a client prefers (RFC 7240): to wait so long for the result, or not at all."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

__all__ = ["Preference", "preference_of"]


class Preference(msgspec.Struct, frozen=True):
    """How long to wait for the end of a job before it is answered that the job goes on."""

    wait: int | None = None
    """Seconds; None: it says nothing of that."""
    respond_async: bool = False
    """It may be answered before the job has ended; without ``wait``, at once."""

    def seconds(self, default: float, longest: float) -> float:
        """How long to wait; ``default``: for who prefers nothing, ``longest``: for anybody."""
        if self.wait is not None:
            return min(float(self.wait), longest)
        return 0.0 if self.respond_async else min(default, longest)

    def applied(self, longest: float) -> dict[str, str]:
        """The header that says what was done about it."""
        if self.wait is not None:
            said = f"wait={min(self.wait, int(longest))}"
            return {"Preference-Applied": f"respond-async, {said}" if self.respond_async else said}
        return {"Preference-Applied": "respond-async"} if self.respond_async else {}


def preference_of(headers: Iterable[str]) -> Preference:
    """What the ``Prefer`` headers of a request say; of a preference that is said twice the first counts, and what is
    not understood does not."""
    said: dict[str, str] = {}
    for one in ",".join(headers).split(","):
        name, _, value = one.partition(";")[0].partition("=")
        said.setdefault(name.strip().lower(), value.strip().strip('"'))
    wait = said.get("wait", "")
    known = wait.isascii() and wait.isdigit() and len(wait) < 10
    return Preference(int(wait) if known else None, "respond-async" in said)
