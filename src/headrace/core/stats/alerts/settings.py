"""Alerts about settings: what is paused, undefined, switched off, or of another version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.core.limits.settings import Limits, told_undefined, told_unreadable
from headrace.core.stats.alerts.alert import Alert, Kind
from headrace.core.webhooks.subscription import Webhook

__all__ = ["setting_alerts"]


def setting_alerts(limits: Limits, webhooks: Iterable[Webhook]) -> Iterator[Alert]:
    """Yield alerts about settings."""
    for rate, message in told_undefined(limits).items():
        remedy = f"headrace rates set {rate} LIMIT --per DURATION, or app.rate in code"
        yield Alert(Kind.UNDEFINED_RATE, "warn", rate, message, remedy)
    for webhook in webhooks:
        if not webhook.on:
            message = f"webhook {webhook.id} is switched off: {webhook.off_because}"
            remedy = f"mend it, then: headrace webhooks on {webhook.id}; or headrace webhooks delete {webhook.id}"
            yield Alert(Kind.WEBHOOK_OFF, "warn", webhook.id, message, remedy)
    for key, why in limits.unreadable.items():
        yield Alert(Kind.UNREADABLE_SETTING, "warn", key, *told_unreadable(key, why))
    for name, rule in limits.queues.items():
        if rule.paused:
            by = f" by {rule.paused_by}" if rule.paused_by else ""
            message = f"queue {name!r} is paused{by}"
            yield Alert(Kind.PAUSED_QUEUE, "warn", name, message, f"headrace queues resume {name}")
    for name in limits.paused_tasks:
        whose = limits.task(name).paused_by
        message = f"task {name!r} is paused{f' by {whose}' if whose else ''}"
        yield Alert(Kind.PAUSED_TASK, "warn", name, message, f"headrace tasks resume {name}")
