from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap

import pytest

import headrace

EXPORTS = """
App Task Tasks Draft Job JobHandle Context Rate Retry Cron Every Continuous JobOptions Status Snooze GiveUp RetryLater
HeadraceError JobFailed JobCancelled ResultTimeout InvalidPayload Duplicate Stream
"""


def test_the_root_exports_what_was_decided() -> None:
    assert sorted(headrace.__all__) == sorted(EXPORTS.split())
    assert all(hasattr(headrace, name) for name in headrace.__all__)


MEMBERS = {
    "App": """
    worker override lifespan wait submit submit_many handle jobs stats queues workers schedules include schedule task
    bulk queue rate resource middleware batch where
    count failures feed watch logs history explain charts tasks limits rates audit verify doctor prune migrate
    middleware submit_middleware
    """,
    "Tasks": "task",
    "Task": "submit draft options map run fn handle submit_sync",
    "Draft": "id submit submit_sync",
    "JobHandle": "id task duplicate last status refresh result watch cancel retry rerun discard explain stream"
    " postpone run_now move reprioritise resolve",
    "Context": """
    job job_id attempt epoch deadline fence idempotency_key stopping progress check flush current resource step results
    """,
}
"""What people type of each export; names that are kept."""


@pytest.mark.parametrize("name", MEMBERS)
def test_the_names_people_type_are_kept(name: str) -> None:
    made = getattr(headrace, name)
    fields = {*dir(made), *getattr(made, "__annotations__", ())}
    if name in ("App", "JobHandle", "Context", "Task", "Draft"):
        fields |= set(_set_by(made))
    assert set(MEMBERS[name].split()) <= fields


def _set_by(made: type) -> list[str]:
    """The attributes that the constructor of a class sets."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(made)))
    return [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    ]


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
