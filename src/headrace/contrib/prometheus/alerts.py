"""The metric of alerts: one series for each that was ever there, so that a graph shows when it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from prometheus_client.metrics_core import Metric as Family

from headrace.contrib.prometheus.catalogue import gauge
from headrace.core.stats.alerts.alert import Alert
from headrace.core.stats.rollup import OTHER

__all__ = ["MAX_ALERT_SERIES", "AlertSeries"]

MAX_ALERT_SERIES = 200
"""Maximum series with subjects of their own; of more, the subject is ``OTHER``."""


class AlertSeries:
    """The series reported so far."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str, str]] = set()

    def family(self, alerts: Sequence[Alert]) -> Family:
        """Return the metric with these alerts."""
        counted = Counter(self._labels(one) for one in alerts)
        family = gauge("headrace_alerts")
        for labels in sorted({*self._known, *counted}):
            family.add_metric(labels, counted[labels])
        return family

    def _labels(self, alert: Alert) -> tuple[str, str, str]:
        # Workers come and go under ever new ids: only their number is told.
        labels = (alert.kind.value, alert.level, "" if alert.kind.by_worker else alert.subject)
        if labels not in self._known:
            if len(self._known) >= MAX_ALERT_SERIES:
                return alert.kind.value, alert.level, OTHER
            self._known.add(labels)
        return labels
