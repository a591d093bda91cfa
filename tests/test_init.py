from __future__ import annotations

import subprocess
import sys

import pytest

import headrace

EXPORTS = """
App Task Tasks Draft Job JobHandle Context Rate Retry Cron Every Continuous JobOptions Status Snooze GiveUp RetryLater
HeadraceError JobFailed JobCancelled ResultTimeout InvalidPayload Duplicate Stream
"""


def test_the_root_exports_what_was_decided() -> None:
    assert sorted(headrace.__all__) == sorted(EXPORTS.split())
    assert all(hasattr(headrace, name) for name in headrace.__all__)


def test_importing_headrace_is_cheap() -> None:
    heavy = ["apsw", "rich", "click", "pydantic", "sqlite3", "multiprocessing.pool"]
    code = f"import sys, headrace; print([name for name in {heavy} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_the_exports_are_the_very_things_of_their_modules() -> None:
    from headrace.app import App
    from headrace.errors import Snooze

    assert headrace.App is App
    assert headrace.Snooze is Snooze
    assert set(headrace.__all__) <= set(dir(headrace))


def test_a_name_that_is_not_exported_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Worker'"):
        headrace.Worker  # type: ignore[attr-defined]  # that is what is tested  # noqa: B018


def test_the_command_line_does_not_import_the_app_before_it_needs_it() -> None:
    code = (
        "import sys, headrace.cli; print([name for name in ('headrace.app', 'rich', 'asyncio') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
