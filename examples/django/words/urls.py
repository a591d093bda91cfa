"""The addresses: a view that is a job, and the pages of jobs."""

from collections import Counter
from typing import Any

import msgspec
from django.core.exceptions import PermissionDenied
from django.urls import include, path

from headrace import Context, JobOptions
from headrace.contrib.django.views import job_view, status_urls


class Text(msgspec.Struct):
    text: str


class Words(msgspec.Struct):
    words: int
    most: list[tuple[str, int]]


def current_user(request: Any) -> str:
    user = request.headers.get("X-User")
    if user not in ("ann", "bob"):
        raise PermissionDenied
    return str(user)


@job_view("POST", identity=current_user, job=JobOptions(timeout=60))
def count(ctx: Context, body: Text, most: int = 3) -> Words:
    """Count the words of a text; this runs in a thread of a worker."""
    given = body.text.lower().split()
    found = Counter[str]()
    for done, word in enumerate(given):
        found[word] += 1
        ctx.progress(100 * done / len(given))
    return Words(len(given), found.most_common(most))


urlpatterns = [
    path("words", count),
    path("jobs/", include(status_urls(identity=current_user))),
]
