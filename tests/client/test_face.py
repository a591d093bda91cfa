"""The names that users type, of an App, its nouns, handles, tasks, drafts and contexts: these and no others."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace import App, Context, Draft, JobHandle, Task, Tasks
from headrace.client.job_set import JobSet
from headrace.core.job import Spec
from headrace.core.lifecycle.submission import submit
from tests.docs.pages import ROOT
from tests.support.apps import Sums

NOUNS = {
    "jobs": """list count where handle get get_many history explain position watch follow feed failures logs log_page
        log_tail items steps act""",
    "batches": "list handle watch",
    "queues": "list pause resume set reset forget",
    "limits": "list set reset forget usage",
    "rates": "list set reset forget undefined",
    "schedules": "list set get edit pause resume trigger delete preview",
    "tasks": "list get knows pause resume announce",
    "workers": "list drain explain get_gone gone local",
    "webhooks": "list get add set rotate delete test deliveries redeliver",
    "keys": "list create revoke rotate_leases replace_secret",
    "stats": "counts snapshot metrics charts rollups depths alerts errors scale duration",
    "store": "exists ping migrate prune verify doctor audit",
}
APP = """task bulk include queue rate resource middleware submit_middleware on_success on_failed on_retry on_cancelled
    submit draft submit_many submit_each batch worker lifespan maintenance wait iterate override settings session
    host"""
ACTIONS = "cancel retry rerun discard postpone run_now move reprioritise resolve"


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def names(text: str) -> set[str]:
    return set(text.split())


def test_an_app_has_thirty_eight_names() -> None:
    assert public(App("memory://")) == {*APP.split(), *NOUNS, "defaults"}
    assert len({*APP.split(), *NOUNS}) == 38


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_has_these_names(noun: str) -> None:
    assert public(getattr(App("memory://"), noun)) == set(NOUNS[noun].split())


def test_actions_are_methods_of_handles_and_sets_alone() -> None:
    assert public(JobSet(App("memory://"), {})) == {"list", "count", "preview", "act", *ACTIONS.split()}
    handle: JobHandle[Any] = JobHandle(App("memory://"), UUID(int=0))
    own = "id task duplicate replaced last status refresh result ended watch stream logs explain"
    assert public(handle) == {*own.split(), *ACTIONS.split()}
    assert len(public(handle)) == 22
    app = App("memory://")
    nouns = [getattr(app, noun) for noun in NOUNS]
    for action in set(ACTIONS.split()) - {"rerun"}:
        assert not hasattr(app, action)
        assert all(not hasattr(noun, action) for noun in nouns)


def test_tasks_drafts_and_contexts_have_these_names() -> None:
    sums = Sums()
    draft = sums.add.draft(1, 2)
    ran = submit(draft.id, Spec(task="add", created_at=sums.app.host.clock.now()), "{}", sums.app.host.clock.now())
    # A task has what its function has, besides.
    assert public(Task) == names("name fn app options submit submit_sync draft map run handle")
    assert public(sums.add) - public(Task) == {"hooks", "handler"}
    assert public(draft) == names("id task payload_text options submit submit_sync with_options")
    assert public(Tasks()) == names("prefix task bulk resource app")
    assert public(Context._detached(ran)) == names(
        """job job_id attempt epoch deadline fence idempotency_key started_at stopping progress heartbeat check flush
        current step step_sync results stream_position resource complete complete_sync transaction"""
    )


def test_four_names_have_a_twin_without_asyncio() -> None:
    twins = {
        f"{kind.__name__}.{name}"
        for kind in (App, Task, Tasks, Draft, JobHandle, JobSet, Context, *map(type, map(noun_of, NOUNS)))
        for name in public(kind)
        if name.endswith("_sync")
    }
    assert twins == {"Task.submit_sync", "Draft.submit_sync", "Context.step_sync", "Context.complete_sync"}


def noun_of(name: str) -> Any:
    return getattr(App("memory://"), name)


@pytest.mark.parametrize("noun", NOUNS)
def test_every_method_of_a_noun_says_what_it_does(noun: str) -> None:
    kind = type(noun_of(noun))
    methods = [getattr(kind, name) for name in NOUNS[noun].split() if hasattr(kind, name)]
    assert all(inspect.getdoc(method) for method in methods)


_IMPORT = re.compile(
    r"^\s*(?:from (headrace(?:\.[\w.]+)?) import ([\w, ]+|\([^)]*\))|import (headrace(?:\.[\w.]+)?)$)", re.MULTILINE
)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guides").glob("*.md")])
FACE = """headrace:App headrace:Context headrace:Retry headrace.testing:harness headrace.hub:Hub
    headrace.dashboard:dashboard headrace.endpoints.fastapi:JobRouter headrace.endpoints.fastapi:status_router
    headrace.endpoints.starlette:JobRoutes headrace.endpoints.flask:JobBlueprint headrace.contrib.django
    headrace.contrib.otel:instrument headrace.contrib.prometheus headrace.conformance:Suite headrace.errors"""
"""The paths that are promised, named by a page or not."""


def imported(page: Path) -> set[str]:
    """What the examples of a page import of headrace, as ``module:name``."""
    found = set[str]()
    for module, several, alone in _IMPORT.findall(page.read_text(encoding="utf-8")):
        each = [name.split(" as ")[0].strip() for name in several.strip("()").split(",")]
        found |= {alone} if alone else {f"{module}:{name}" for name in each}
    return {one.removesuffix(":") for one in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_imports_is_there(page: Path) -> None:
    absent = [path for path in imported(page) if not _is_there(path)]
    assert absent == []


def test_every_path_of_the_face_is_there() -> None:
    assert [path for path in FACE.split() if not _is_there(path)] == []
    assert sum(bool(imported(page)) for page in PAGES) > 20


def _is_there(path: str) -> bool:
    module, _, name = path.partition(":")
    try:
        found = import_module(module)
    except ImportError:
        return False
    return not name or hasattr(found, name)
