"""Alerts as pages show them: as sentences, each with a link to where it is seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.core.stats.alerts.alert import Alert, Kind, Level
from headrace.core.webhooks.delivery import TASK as DELIVER

__all__ = ["Problem", "problems_of"]


@dataclass(frozen=True)
class Problem:
    """An alert, and the page that shows more."""

    level: Level
    text: str
    remedy: str
    path: str
    query: dict[str, str]
    see: str


def problems_of(alerts: Iterable[Alert]) -> list[Problem]:
    """Return the alerts as a page shows them."""
    return [Problem(one.level, _sentence(one.message), _sentence(one.remedy), *_place(one)) for one in alerts]


def _sentence(text: str) -> str:
    """Return the text as a sentence; a command stays as it is typed."""
    return text if text.startswith("headrace ") else text[:1].upper() + text[1:]


def _place(alert: Alert) -> tuple[str, dict[str, str], str]:
    """Return the path and query of the page, and the text of the link."""
    name = alert.subject
    match alert.kind:
        case Kind.UNSERVED_TASK if alert.level == "warn":
            return "/jobs", {"task": name}, "See the jobs"
        case Kind.UNSERVED_TASK | Kind.UNMET_REQUIREMENTS:
            return "/jobs", {"task": name, "status": "queued"}, "See the jobs"
        case Kind.UNSERVED_QUEUE | Kind.GROWING_QUEUE | Kind.SLOW_QUEUE:
            return "/jobs", {"queue": name, "status": "queued"}, "See the jobs"
        case Kind.FAILING_TASK:
            return "/errors", {"task": name}, "See its errors"
        case Kind.DEAD_LETTERS:
            return "/dead", {"task": name}, "See its dead letters"
        case Kind.QUARANTINE:
            return "/jobs", {"suspect": "1"}, "See the jobs"
        case Kind.PAUSED_QUEUE:
            return f"/queues/{name}", {}, "See the queue"
        case Kind.PAUSED_TASK:
            return f"/tasks/{name}", {}, "See the task"
        case Kind.WEBHOOK_OFF:
            return "/jobs", {"task": DELIVER}, "See deliveries"
        case Kind.FULL_QUEUE | Kind.FULL_TASK | Kind.UNDEFINED_RATE | Kind.UNREADABLE_SETTING:
            return "/limits", {}, "See limits"
        case _:
            return "/workers", {}, "See workers"
