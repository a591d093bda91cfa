"""The pages for readers of other systems: each names every status and every setting of that system."""

from __future__ import annotations

import re

import pytest

from headrace.core.status import Status
from tests.docs.pages import ROOT, name

FOLDER = ROOT / "docs" / "coming-from"

STATUSES = {
    "asyncendpoints": ["Queued", "Scheduled", "InProgress", "Completed", "Failed", "Canceled"],
    "celery": ["PENDING", "RECEIVED", "STARTED", "RETRY", "SUCCESS", "FAILURE", "REVOKED"],
    "emprops": [
        "PENDING",
        "QUEUED",
        "ASSIGNED",
        "ACCEPTED",
        "IN_PROGRESS",
        "COMPLETED",
        "FAILED",
        "TIMEOUT",
        "CANCELLED",
    ],
    "jobmaster": [
        *("SavePending", "HeldOnMaster", "AssignedToBucket", "Onboarded", "Queued"),
        *("Processing", "Succeeded", "Failed", "Cancelled"),
    ],
    "osqueue": ["unclaimed", "in_progress", "completed", "exhausted"],
    "rq": ["queued", "started", "deferred", "scheduled", "finished", "failed", "stopped", "canceled"],
    "surefire": ["Pending", "Running", "Completed", "Retrying", "Cancelled", "Dead letter"],
}
"""The statuses of each system, which its page has in a table."""

SETTINGS = {
    "asyncendpoints": [
        *("JobTimeoutMinutes", "MaximumConcurrency", "BatchSize", "JobClaimTimeout", "RetryDelayBaseSeconds"),
        *("MaxRetries", "MaximumRetries", "EnableDistributedJobRecovery", "RecoveryConfiguration.JobTimeoutMinutes"),
        *("RecoveryCheckIntervalSeconds", "MaxConcurrentJobs", "MaxClaimBatchSize", "StaleJobClaimCheckInterval"),
        *("X-Async-Request-Id", "polling interval", "local queue"),
    ],
    "celery": [
        *("task_acks_late", "task_time_limit", "max_retries", "default_retry_delay", "retry_backoff_max"),
        *("result_expires", "worker_concurrency", "worker_prefetch_multiplier", "visibility_timeout"),
        *("task_default_queue", "broker_url", "result_backend"),
    ],
    "emprops": [
        *("priority", "max_retries", "retry_delays", "retry_conditions", "no_retry_conditions", "claim_timeout"),
        *("timeout_minutes", "assignment timeout", "processing timeout", "heartbeat timeout", "connection timeout"),
        *("max_concurrent_jobs", "current_load", "capabilities", "services", "components", "hardware"),
        *("customer_access.isolation", "requirements", "service_type", "component", "quality_level", "customer_id"),
        *("webhook_url", "events", "authentication", "status_change", "progress", "completion"),
        *("system 90–100", "high 70–89", "normal 30–69", "low 0–29"),
    ],
    "jobmaster": [
        *("TransientThreshold", "job timeout", "maximum retries", "retry delay", "payload size", "retention"),
        *("VeryLow", "Low", "Medium", "High", "Critical", "worker lane", "batch size", "RunCapacity"),
        *("Active", "Passive", "Archive", "Full", "Coordinator", "Execution", "Drain", "worker heartbeat"),
        *("process deadline", "stop grace", "recurring", "metadata", "job definition id"),
    ],
    "osqueue": [
        *("maxAttempts", "attempts", "heartbeat interval", "heartbeatTimeoutMs", "types", "worker poll interval"),
        *("worker concurrency", "commit interval", "expiry", "broker heartbeat", "Zod", "completedTotal"),
    ],
    "rq": ["job_timeout", "result_ttl", "failure_ttl", "ttl", "interval", "worker_ttl", "--max-jobs", "--burst"],
    "surefire": [
        *("MaxRetries", "BackoffType", "InitialDelay", "MaxDelay", "Jitter", "DeduplicationId", "NotBefore"),
        *("NotAfter", "heartbeat", "InactiveThreshold", "RerunOfRunId", "polling interval", "retention"),
        *("purge interval", "shutdown timeout", "node concurrency", "auto-migrate", "WithCron", "MisfirePolicy"),
        *("Continuous", "WithTimeout", "WithMaxConcurrency", "WithQueue", "WithPriority", "WithRateLimit"),
        *("WithDescription", "WithTags", "OnSuccess", "OnRetry", "OnDeadLetter", "UseFilter"),
    ],
}
"""The settings of each system, which its page has in the first cell of a row."""

NUMBERS = {
    "asyncendpoints": ["30 min", "300", "2, 4, 8, 16 s", "5 min"],
    "emprops": ["30 s", "60 s", "30 min", "5 min", "5, 15, 30 s"],
    "jobmaster": ["10 min", "5 min", "128 KiB", "30 d", "250"],
    "osqueue": ["5 s", "30 s", "50 ms", "3 s, 10 s"],
    "surefire": ["5 s", "30 s", "2 min", "7 d", "15 s", "0.5–1.0"],
}
"""Numbers of its page, which the reader looks for."""

DESIGNS = sorted(NUMBERS)
"""Those whose words headrace speaks."""


def text(design: str) -> str:
    """The page about a system."""
    return (FOLDER / f"{design}.md").read_text(encoding="utf-8")


def rows(page: str) -> list[list[str]]:
    """The rows of the tables of a page, cell by cell."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]


def first_cells(page: str) -> str:
    """What stands in the first column of the tables."""
    return "\n".join(cells[0] for cells in rows(page))


def absent(wanted: list[str], within: str) -> list[str]:
    """The words that a text does not have, as words of their own."""
    return [word for word in wanted if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", within)]


def test_every_system_has_a_page() -> None:
    pages = {page.stem for page in FOLDER.glob("*.md")}
    assert pages == {*STATUSES, "index"}
    assert {*STATUSES} == {*SETTINGS} == {*DESIGNS, "celery", "rq"}
    assert all(f"({page}.md)" in text("index") for page in STATUSES)


@pytest.mark.parametrize("system", STATUSES)
def test_a_page_names_every_status_in_a_table(system: str) -> None:
    table = text(system).partition("## Statuses\n")[2].partition("\n## ")[0]
    assert absent([f"`{word}`" for word in STATUSES[system]], first_cells(table)) == []


@pytest.mark.parametrize("system", STATUSES)
def test_a_page_places_every_status_of_ours(system: str) -> None:
    table = text(system).partition("## Statuses\n")[2].partition("\n## ")[0]
    assert absent([f"`{status}`" for status in Status if status != Status.PENDING], table) == []


@pytest.mark.parametrize("system", SETTINGS)
def test_a_page_names_every_setting_beside_ours(system: str) -> None:
    assert absent(SETTINGS[system], first_cells(text(system))) == []


@pytest.mark.parametrize("system", NUMBERS)
def test_a_page_names_the_numbers_of_the_system(system: str) -> None:
    tables = "\n".join(" ".join(cells) for cells in rows(text(system)))
    assert absent(NUMBERS[system], tables) == []


@pytest.mark.parametrize("system", STATUSES)
def test_a_table_of_settings_has_the_default_of_both_sides(system: str) -> None:
    settings = text(system).partition("## Settings\n")[2].partition("\n## ")[0]
    head = rows(settings)[0]
    assert (head[1], head[2], head[3]) == ("default there", "headrace", "default here"), name(FOLDER / f"{system}.md")


@pytest.mark.parametrize("system", DESIGNS)
def test_a_page_says_how_to_speak_its_words_and_what_differs(system: str) -> None:
    page = text(system)
    assert f"?words={system}" in page
    assert absent(["## Better here", "## Deliberately not there"], page) == []


@pytest.mark.parametrize("system", ["celery", "rq"])
def test_pages_of_other_libraries_name_what_there_is_by_now(system: str) -> None:
    page = text(system)
    guides = ("dashboard", "batches", "schedules", "middleware", "testing", "operations", "remote-workers")
    assert [guide for guide in guides if f"(../guides/{guide}.md" not in page] == []
    left_out = page.partition("## Not there\n")[2].partition("\n## ")[0].lower()
    assert left_out
    assert absent(["`headrace hub`"], page) == []
    assert [word for word in ("dashboard", "http", "webhook", "metric", "remote") if word in left_out] == []


def test_what_a_page_lacks_is_found() -> None:
    page = "| there | here |\n|---|---|\n| `Queued` | `MaxRetries` |\nIn text, `Failed`.\n"
    assert absent(["Queued", "Failed", "MaxRetries", "Queue"], first_cells(page)) == ["Failed", "MaxRetries", "Queue"]
