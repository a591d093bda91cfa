from __future__ import annotations

import subprocess
import sys

import headrace

EXPORTS = """
App Task Tasks Draft Job JobHandle Context Retry Cron Every JobOptions Status Snooze GiveUp RetryLater
HeadraceError JobFailed JobCancelled ResultTimeout InvalidPayload Duplicate
"""


def test_the_root_exports_what_was_decided() -> None:
    assert sorted(headrace.__all__) == sorted(EXPORTS.split())
    assert all(hasattr(headrace, name) for name in headrace.__all__)


def test_importing_headrace_is_cheap() -> None:
    heavy = ["apsw", "rich", "click", "pydantic", "sqlite3", "multiprocessing.pool"]
    code = f"import sys, headrace; print([name for name in {heavy} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
