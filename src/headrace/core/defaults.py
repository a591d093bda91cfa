"""The numbers that users are promised: sizes, counts, lengths of pages, times and retention.

``Rules`` has those of the lifecycle, as one value that is passed to every decision. All other numbers are with their
mechanism.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from headrace.core.status import ENDED, Status

__all__ = [
    "DASHBOARD_SESSION_LIFETIME",
    "DELIVERY_RETENTION",
    "MAX_ACTION_VERDICTS",
    "MAX_AFTER_JOBS",
    "MAX_API_KEY_NAMES",
    "MAX_AUDIT_ENTRIES",
    "MAX_BULK_ITEMS",
    "MAX_BULK_WAIT_SECONDS",
    "MAX_CATCH_UP_FIRES",
    "MAX_COUNT",
    "MAX_CUSTOMERS_PROFILES",
    "MAX_CUSTOMER_PROFILES",
    "MAX_CUSTOMER_WEBHOOKS",
    "MAX_DASHBOARD_SESSIONS",
    "MAX_DOCUMENT_BYTES",
    "MAX_ENDPOINT_BODY_BYTES",
    "MAX_ENDPOINT_WAIT_SECONDS",
    "MAX_ERROR_BYTES",
    "MAX_FILTER_VALUES",
    "MAX_HUB_PAGE_BYTES",
    "MAX_HUB_PAGE_JOBS",
    "MAX_JSON_DEPTH",
    "MAX_KEY_CHARACTERS",
    "MAX_LOG_LINES",
    "MAX_LOG_LINE_CHARACTERS",
    "MAX_LONG_POLL_SECONDS",
    "MAX_MESSAGE_LINES",
    "MAX_MOMENT",
    "MAX_NAME_CHARACTERS",
    "MAX_NOTE_CHARACTERS",
    "MAX_NUMBER",
    "MAX_PAYLOAD_BYTES",
    "MAX_PROFILES",
    "MAX_RESULT_BYTES",
    "MAX_SOCKET_WORKERS",
    "MAX_STATS_SERIES",
    "MAX_SUBMIT_JOBS",
    "MAX_TAGS",
    "MAX_TAG_CHARACTERS",
    "MAX_WEBHOOKS",
    "MAX_WEBHOOK_ADDRESSES",
    "MAX_WEBHOOK_FAILURES",
    "MAX_WEBHOOK_RESULT_BYTES",
    "MIN_HEARTBEAT_SECONDS",
    "MIN_MOMENT",
    "PAGE_HEARTBEAT_SECONDS",
    "SCALE_WAIT_SECONDS",
    "SKIP_GRACE_SECONDS",
    "STATS_RETENTION",
    "WEBHOOK_ADDRESS_RETENTION",
    "WEBHOOK_PROGRESS_INTERVAL",
    "WEBHOOK_TIMEOUT_SECONDS",
    "Retention",
    "Rules",
]

# Jobs

MAX_PAYLOAD_BYTES = 128 * 1024
"""Bytes of a payload as JSON."""
MAX_RESULT_BYTES = 1024 * 1024
"""Bytes of a result, of an item of a stream, or of a step's result, as JSON."""
MAX_DOCUMENT_BYTES = 16 * 1024
"""Bytes of metadata, of requirements, or of a trace, as JSON."""
MAX_ERROR_BYTES = 16 * 1024
"""Bytes of an error as JSON; what is longer is cut, not refused."""
MAX_TAGS = 32
"""Tags of a job."""
MAX_TAG_CHARACTERS = 128
"""Characters of a tag."""
MAX_NAME_CHARACTERS = 128
"""Characters of the name of a task, a queue, a rate or a schedule."""
MAX_KEY_CHARACTERS = 512
"""Characters of a customer, of a dedup, request or concurrency key, and of the name of a step."""
MAX_NOTE_CHARACTERS = 256
"""Characters of the name of an actor, and of the note of an action."""
MAX_COUNT = 1_000_000_000
"""The greatest number of retries, of jobs at once, of permits: every store counts this far."""
MAX_NUMBER = 2**53
"""The greatest whole number, positive or negative, that every language and every float holds exactly."""
MAX_JSON_DEPTH = 100
"""Maximum depth of nested JSON: its reader may be deep in calls of its own already."""
MIN_MOMENT = datetime(1900, 1, 1, tzinfo=UTC)
MAX_MOMENT = datetime(9000, 1, 1, tzinfo=UTC)
"""Moments are between these: far enough from the ends of the calendar that a zone and a century may be added."""
MIN_HEARTBEAT_SECONDS = 0.1
"""The shortest heartbeat of a job: signs are written three times as often."""
PAGE_HEARTBEAT_SECONDS = 60.0
"""Seconds within which a worker behind a hub must report something of a job that was submitted by the EmProps page."""
MAX_AFTER_JOBS = 1000
"""How many jobs one may wait for; a batch has room for more."""

# Schedules

SKIP_GRACE_SECONDS = 60.0
"""Seconds after which a fire counts as missed; a planner that dies on a fire is replaced within them."""
MAX_CATCH_UP_FIRES = 100
"""How many missed fires ``catch_up="all"`` makes good by default; the newest are kept."""

# Customers, keys and the record of actions

MAX_PROFILES = 10_000
"""Pairs of task and requirements with live jobs that belong to no customer."""
MAX_CUSTOMERS_PROFILES = 8_000
"""With so many pairs of live jobs, a customer's job makes no new pair: the rest is for the operator's."""
MAX_CUSTOMER_PROFILES = 100
"""Pairs with live jobs of one customer, unless a key of that customer sets another number."""
MAX_AUDIT_ENTRIES = 1000
"""Actions in the audit record: the newest are kept."""
MAX_API_KEY_NAMES = 100
"""Tasks or queues that an API key may be bound to."""
DASHBOARD_SESSION_LIFETIME = timedelta(hours=12)
"""The maximum lifetime of a dashboard session."""
MAX_DASHBOARD_SESSIONS = 50
"""Sessions of the dashboard for one key; the oldest ends when there is one more."""

# Stats

STATS_RETENTION = timedelta(days=90)
"""How long rollups are kept."""
MAX_STATS_SERIES = 500
"""Maximum series (a task in a queue) of one minute, hour or day; the rest is ``OTHER``."""
SCALE_WAIT_SECONDS = 30.0
"""How long jobs may wait, by default, where scaling advice is given."""

# Webhooks

WEBHOOK_PROGRESS_INTERVAL = timedelta(seconds=5)
"""A webhook is sent the progress of a job at most once in this time."""
MAX_WEBHOOK_RESULT_BYTES = 64 * 1024
"""Bytes of a result in a message; a longer one is left out, and the message says so."""
DELIVERY_RETENTION = timedelta(days=7)
"""How long a delivery is kept at least after its end. An older one may be gone, and no caller waits for it."""
WEBHOOK_TIMEOUT_SECONDS = 10.0
"""Seconds for one request: the name, the connection, the request, the head of the reply."""
MAX_WEBHOOK_FAILURES = 10
"""After so many failed deliveries in a row a subscription is switched off."""
MAX_WEBHOOKS = 1000
"""Subscriptions of the operator."""
MAX_CUSTOMER_WEBHOOKS = 10
"""Subscriptions of one customer, unless its key sets another number: each of its jobs makes a message for each."""
MAX_WEBHOOK_ADDRESSES = 1000
"""Addresses that the jobs of one customer may name."""
WEBHOOK_ADDRESS_RETENTION = timedelta(days=35)
"""An address that no submit has named for so long is forgotten."""

# Programs

MAX_FILTER_VALUES = 100
"""Values of one field of a filter."""
MAX_BULK_ITEMS = 1000
"""Items in one call of a bulk task: as many as one claim gives."""
MAX_BULK_WAIT_SECONDS = 10.0
"""Seconds that a bulk task may wait for more items: a claimed job must be started within thirty."""
MAX_LOG_LINES = 1000
"""Lines of the log of one attempt that are stored; further lines are only counted."""
MAX_LOG_LINE_CHARACTERS = 8192
"""Characters of a line of a log; what is longer is cut."""

# HTTP

MAX_ENDPOINT_BODY_BYTES = 2 * 1024 * 1024
"""Bytes that an endpoint reads of a request; it may store fewer."""
MAX_ENDPOINT_WAIT_SECONDS = 60.0
"""Maximum seconds that a request to an endpoint waits for its job, whatever is set."""
MAX_ACTION_VERDICTS = 1000
"""Jobs in one reply to an action of the hub; as lines of JSON there may be any number."""
MAX_HUB_PAGE_JOBS = 1000
"""Jobs of a page of the hub."""
MAX_HUB_PAGE_BYTES = 8 * 1024 * 1024
"""Bytes of payloads and results on a page: a page ends there, and its cursor goes on."""
MAX_SUBMIT_JOBS = 1000
"""Jobs in one body of JSON; lines of JSON may be any number."""
MAX_LONG_POLL_SECONDS = 60.0
"""Seconds that a request to the hub may wait."""
MAX_MESSAGE_LINES = 1000
"""Lines or items in one message of a remote worker."""
MAX_SOCKET_WORKERS = 100
"""Remote workers at one socket."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long ended jobs are kept; live jobs are kept for ever."""

    completed: float = 7 * 86400.0
    failed: float = 30 * 86400.0
    cancelled: float = 30 * 86400.0

    def of(self, status: Status) -> timedelta:
        """Return the retention of one terminal status."""
        return timedelta(seconds=getattr(self, status.value))

    def cutoffs(self, now: datetime) -> dict[Status, datetime]:
        """Return, for each terminal status, the moment at or before which a job must have ended to be pruned."""
        return {status: now - self.of(status) for status in sorted(ENDED)}


_MAX_RECHECK_SECONDS = 1.0


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, counts and bytes; the defaults are those of the lifecycle page."""

    beat: float = 10.0
    lease: float = 30.0
    accept: float = 30.0
    start: float = 30.0
    cancel_grace: float = 10.0
    timeout_slack: float = 10.0
    fragile_after: int = 2
    undeliverable_after: int = 10
    batch_silence: float = 3600.0
    """How long the submitter of an open batch may add nothing before the batch is sealed without it."""
    error_limit: int = MAX_ERROR_BYTES
    retention: Retention = Retention()

    @property
    def silence(self) -> float:
        """How long a worker without an acknowledged beat may start jobs."""
        return self.lease / 2

    @property
    def look_gap(self) -> float:
        """The longest gap between two polls of a worker after which it still counts as watched."""
        return self.lease / 3

    @property
    def recheck(self) -> float:
        """Seconds between two polls of the sweeper about a deadline that is near or has passed."""
        return min(_MAX_RECHECK_SECONDS, self.beat / 4)

    @property
    def timeout_check(self) -> float:
        """Seconds after a timeout from which on the sweeper checks the job: its polls end within ``timeout_slack``,
        also if the first is put off by a poll for another job."""
        return max(0.0, self.timeout_slack - 3 * self.recheck)
