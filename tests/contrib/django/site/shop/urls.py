"""The addresses of the project."""

from typing import Any

import msgspec
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.urls import include, path

from headrace import Context
from headrace.contrib.django.views import job_view, status_urls


class Order(msgspec.Struct):
    item: str
    count: int = 1


def caller(request: HttpRequest) -> str | None:
    found: str | None = request.headers.get("x-caller")
    return found


def admit(request: HttpRequest, draft: Any) -> Any:
    return JsonResponse({"error": "no credit"}, status=402) if request.GET.get("poor") else None


@job_view(identity=caller, before_submit=admit)
def order(ctx: Context, shop: str, order: Order, dry: bool = False) -> list[Any]:
    ctx.progress(50)
    return [shop, order.item, order.count, dry]


@job_view("GET", "PUT", identity=caller)
async def divide(by: int) -> float:
    return 1 / by


urlpatterns = [
    path("orders/<slug:shop>", order),
    path("divide/<int:by>", divide),
    path("own/", include(status_urls(identity=caller, namespace="own"))),
]

if "django.contrib.admin" in settings.INSTALLED_APPS:
    from django.contrib import admin

    urlpatterns.append(path("admin/", admin.site.urls))
