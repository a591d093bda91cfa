"""Every action of the table is in every shell, and no shell has others: one that is missing somewhere fails here."""

from __future__ import annotations

import inspect
import subprocess
import sys
from uuid import UUID

import click
import msgspec
import pytest

from headrace import App, JobHandle
from headrace.cli.commands.actions import COMMANDS
from headrace.cli.root import cli
from headrace.client.job_set import JobSet
from headrace.core.lifecycle.actions import ACTIONS, Action, RerunAction
from headrace.core.lifecycle.transitions import TRANSITIONS
from headrace.core.status import ACTION_LINES, Verb
from headrace.dashboard.actions.endpoint import ActionRefused
from headrace.dashboard.actions.jobs import OnOne
from headrace.hub.api.actions import OPERATIONS
from headrace.hub.openapi.document import document

ID = UUID(int=7)
WORDS = {kind.word() for kind in ACTIONS.values()}
FORM = {"delay": "seconds", "until": "seconds"}
"""How the forms of the dashboard call fields."""


def methods(kind: type) -> set[str]:
    """Those that do something for somebody: they are told ``by`` whom."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name for name, fn in found if not name.startswith("_") and "by" in inspect.signature(fn).parameters}


def test_the_table_is_whole() -> None:
    assert [*ACTIONS] == [kind.verb for kind in ACTIONS.values()] == [*ACTION_LINES]
    for verb, kind in ACTIONS.items():
        assert verb in TRANSITIONS
        assert issubclass(kind, Action)
        assert str(kind.__doc__).endswith(".")
        assert all((kind.past, kind.label, kind.summary))
        assert isinstance(msgspec.convert(kind.example, kind), kind) if kind.example else not kind.needs()


def test_a_handle_and_a_set_have_them_and_the_app_does_not() -> None:
    assert methods(JobHandle) == {*ACTIONS}
    assert methods(JobSet) == {*ACTIONS, "act"}
    gone = {name for verb in ACTIONS for name in (verb.value, f"{verb}_all") if hasattr(App, name)}
    assert gone == set()


@pytest.mark.parametrize("kind", ACTIONS.values(), ids=list(ACTIONS))
@pytest.mark.parametrize("holder", [JobHandle, JobSet])
def test_a_method_takes_the_fields_of_its_action(kind: type[Action], holder: type) -> None:
    taken = inspect.signature(getattr(holder, kind.verb.value)).parameters.keys() - {"self", "by"}
    assert taken == ({"payload", "options"} if kind is RerunAction else {*kind.__struct_fields__})


def test_the_hub_has_an_operation_of_each_and_documents_it() -> None:
    assert {one.name: one.body for one in OPERATIONS if one.name != "act_on_jobs"} == {
        f"{verb}_job": kind for verb, kind in ACTIONS.items()
    }
    paths = document(OPERATIONS, keyed=True)["paths"]
    assert paths.keys() == {f"/api/jobs/{{id}}/{word}" for word in WORDS} | {"/api/jobs/act"}
    many = paths["/api/jobs/act"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert many["discriminator"]["mapping"].keys() == WORDS


def test_the_command_line_has_a_command_of_each() -> None:
    assert COMMANDS.keys() == WORDS
    assert set(cli.list_commands(click.Context(cli))) >= WORDS


@pytest.mark.parametrize("verb", Verb)
def test_the_dashboard_does_these_and_nothing_else(verb: Verb) -> None:
    if (kind := ACTIONS.get(verb)) is None:
        with pytest.raises(ActionRefused, match="no such action"):
            OnOne(verb=verb, id=ID).action()
        return
    needed = {FORM.get(name, name): kind.example[name] for name in kind.needs()}
    assert type(OnOne(verb=verb, id=ID, **needed).action()) is kind


def test_a_rerun_from_a_page_has_the_options_of_the_old_job() -> None:
    assert OnOne(verb=Verb.RERUN, id=ID, queue="other", priority=100, seconds=9).action() == RerunAction()


def test_the_admin_of_django_has_those_that_need_no_form() -> None:
    program = """
import django
from django.conf import settings

apps = ["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "headrace.contrib.django"]
settings.configure(INSTALLED_APPS=apps, HEADRACE={"url": "memory://"})
django.setup()
from headrace.contrib.django.admin import ACTS

print(*ACTS)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [verb.value for verb, kind in ACTIONS.items() if kind.bare()]
