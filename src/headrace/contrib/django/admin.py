"""The page of jobs in Django's admin: a list with filters, each job with what happened to it, and what can be done.

The permission ``headrace.view_job`` is for the pages, ``headrace.change_job`` for actions, which are recorded with the
user's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.timezone import get_current_timezone

from headrace.client.api.filters import Filters
from headrace.contrib.django.job_page import about, listed, statuses
from headrace.contrib.django.models import Job
from headrace.contrib.django.project import project_app
from headrace.core.job import Job as StoredJob
from headrace.core.job import as_id
from headrace.core.lifecycle.actions import ACTIONS
from headrace.core.lifecycle.transitions import TRANSITIONS
from headrace.core.query import Page
from headrace.errors import ConfigError, EngineError, HeadraceError, JobNotFound

__all__ = ["JobAdmin"]

PAGE_JOBS = 50
MAX_ACTION_JOBS = 1000
"""Maximum number of jobs of one action."""
MAX_SEARCH_ROUNDS = 2
"""For a text, so many times 5,000 jobs are searched for one page."""
FILTERS = ("status", "task", "queue")


ACTS = {verb.value: kind() for verb, kind in ACTIONS.items() if kind.bare()}
"""Those that need no form."""


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):
    """Shows the jobs of the project's App, which are no rows of its database."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Jobs are submitted by programs."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Jobs are kept as long as their retention says."""
        return False

    def get_urls(self) -> list[Any]:
        """The two pages that there are, by the names that Django links to."""
        wrap = self.admin_site.admin_view
        return [
            path("", wrap(self.changelist_view), name="headrace_job_changelist"),
            path("<str:object_id>/change/", wrap(self.change_view), name="headrace_job_change"),
        ]

    # -- many

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """A page of jobs, newest first; posted to, what is chosen is done to the jobs that are marked."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            ids = request.POST.getlist("_selected_action")[:MAX_ACTION_JOBS]
            return self._act(request, ids, request.get_full_path())
        given, app = request.GET, project_app()
        page, problem, status = Page[StoredJob](()), None, 200
        tasks, queues = list[str](), list[str]()
        try:
            page = app.wait(_found(given))
            tasks = [one.name for one in app.wait(app.tasks.list())]
            queues = sorted(one.name for one in app.wait(app.queues.list(history=False)))
        except ConfigError as error:  # in the address
            problem, status = str(error), 400
        except EngineError as error:
            problem, status = str(error), 503
        choices = {"status": statuses(), "task": tasks, "queue": queues}
        context = {
            "title": "Jobs",
            "jobs": listed(page.items),
            "problem": problem,
            "filters": [(name, _links(given, name, choices[name])) for name in FILTERS],
            "filtered": any(given.get(name) for name in (*FILTERS, "q")),
            "kept": [(name, given[name]) for name in FILTERS if given.get(name)],
            "q": given.get("q", ""),
            "first": _query(given, cursor=None) if given.get("cursor") else None,
            "next": None if page.cursor is None else _query(given, cursor=page.cursor),
            "acts": list(ACTS.values()) if self.has_change_permission(request) else (),
            **(extra_context or {}),
        }
        return self._shown(request, "jobs", context, status)

    # -- one

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """All that is known of a job; posted to, what is chosen is done to it."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._act(request, [object_id], request.get_full_path())
        try:
            found = project_app().wait(about(project_app(), as_id(object_id), get_current_timezone()))
        except (ConfigError, JobNotFound):
            messages.warning(request, f"There is no job {object_id}. Perhaps it was kept long enough, and is deleted.")
            return HttpResponseRedirect(_list())
        except EngineError as error:
            return self._shown(request, "job", {"title": "Job", "problem": str(error)}, 503)
        job, may = found["job"], self.has_change_permission(request)
        acts = [act for act in ACTS.values() if may and job["status"] in TRANSITIONS[act.verb]]
        context = {"title": job["task"], "subtitle": str(job["id"]), "acts": acts, **found, **(extra_context or {})}
        return self._shown(request, "job", context)

    # -- actions

    def _act(self, request: HttpRequest, ids: Sequence[str], back: str) -> HttpResponse:
        """Do what the form says to these jobs, or request confirmation; then show the page again."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        act = ACTS.get(request.POST.get("action", ""))
        if act is None or not ids:
            messages.warning(request, "Nothing was done: choose an action, and mark the jobs that it is for.")
            return HttpResponseRedirect(back)
        if act.confirmed and "sure" not in request.POST:
            title = f"{act.label} {'this job' if len(ids) == 1 else f'these {len(ids)} jobs'}?"
            return self._shown(request, "sure", {"title": title, "act": act, "ids": ids, "back": back})
        done, refused = list[str](), list[str]()
        for id in ids:
            try:
                project_app().wait(project_app().jobs.act(id, act, by=cast("Any", request.user).get_username()))
            except HeadraceError as error:
                refused.append(str(error))
                continue
            done.append(id)
            self.log_change(request, Job(id=id), f"{act.label}.")
        if done:
            messages.success(request, f"{len(done)} {'job' if len(done) == 1 else 'jobs'} {act.past}.")
        for text in refused[:5]:
            messages.error(request, text)
        if len(refused) > 5:
            messages.error(request, f"And {len(refused) - 5} more that could not be {act.past}.")
        return HttpResponseRedirect(back)

    def _shown(self, request: HttpRequest, page: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
        whole = {**self.admin_site.each_context(request), "opts": self.opts, "list": _list(), **context}
        request.current_app = self.admin_site.name
        return TemplateResponse(request, f"headrace/admin/{page}.html", whole, status=status)


async def _found(given: Any) -> Page[StoredJob]:
    """The jobs that an address names; :raises ConfigError: it is not understood"""
    app, wanted, cursor = project_app(), given.get("q", "").strip(), given.get("cursor") or None
    filters = cast("Filters", {name: given[name] for name in FILTERS if given.get(name)})
    if not wanted:
        return await app.jobs.list(limit=PAGE_JOBS, cursor=cursor, **filters)
    try:
        job = await app.jobs.get(wanted)
    except (ConfigError, JobNotFound):
        pass  # it is no id, or none that is there
    else:
        return Page((job,))
    filters["text"] = wanted
    found = list[StoredJob]()
    for _ in range(MAX_SEARCH_ROUNDS):
        page = await app.jobs.list(limit=PAGE_JOBS - len(found), cursor=cursor, **filters)
        found, cursor = [*found, *page.items], page.cursor
        if cursor is None or len(found) >= PAGE_JOBS:
            break
    return Page(tuple(found), cursor)


def _list() -> str:
    return str(reverse("admin:headrace_job_changelist"))


def _links(given: Any, name: str, values: Sequence[str]) -> list[tuple[str, str, bool]]:
    """What a filter can be set to: its text, its address, and whether it is set so."""
    now = given.get(name, "")
    known = [*values, *([now] if now and now not in values else [])]
    return [("All", _query(given, **{name: None}), not now)] + [
        (value, _query(given, **{name: value}), value == now) for value in known
    ]


def _query(given: Any, **changes: str | None) -> str:
    """The address of the list with other filters, from its beginning unless a cursor is named."""
    query = given.copy()
    query.pop("cursor", None)
    for name, value in changes.items():
        query.pop(name, None)
        if value is not None:
            query[name] = value
    return f"?{query.urlencode()}"
