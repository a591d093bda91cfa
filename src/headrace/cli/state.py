"""What the flags shared by all commands said."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

__all__ = ["State"]


def _debug() -> bool:
    return os.environ.get("HEADRACE_DEBUG", "") not in ("", "0")


@dataclass
class State:
    """The shared flags of one command line; None is unset, so that settings can speak."""

    url: str | None = None
    app: str | None = None
    json: bool = False
    debug: bool = field(default_factory=_debug)
    log_format: str = "text"
    """How what is said on stderr is written, also errors; a worker's is looked up in the settings."""
