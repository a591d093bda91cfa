"""Addresses with two sets of status pages, and a view that names one of them, or wrongly none: ``SHOP_PAIR`` says."""

import os
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from headrace.contrib.django.views import job_view, status_urls
from shop.urls import caller  # type: ignore[import-not-found]  # Django runs within this folder

PAIR = os.environ.get("SHOP_PAIR", "right")
STATUS = {"unnamed": None, "unknown": "nowhere", "callers": "own"}.get(PAIR, "open")


def healthy(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


@job_view(status=STATUS)
def greet(name: str) -> str:
    return f"hello {name}"


@job_view(status="open", status_url="https://x.example/{id}")
def greet_elsewhere(name: str) -> str:
    return f"hello {name}"


shown: Any = status_urls(public=True, delete="discard", namespace="open")
own: Any = status_urls(identity=caller, namespace="own")
urlpatterns = [
    path("health", healthy),
    path("greet/<str:name>", greet),
    path("elsewhere/<str:name>", greet_elsewhere),
    path("own/", include(own)),
    *([] if PAIR == "absent" else [path("open/", include(shown))]),
]
