"""The audit log: who changed a setting, and when."""

from __future__ import annotations

from headrace.core.audit import Audited
from headrace.core.defaults import MAX_AUDIT_ENTRIES
from headrace.dashboard.page import PageRequest, PageView, Shown

__all__ = ["VIEWS"]

PAGE_ENTRIES = 100
PATHS = {
    "queue": "/queues/",
    "limit": "/limits/",
    "schedule": "/schedules/",
    "task": "/tasks/",
    "webhook": "/webhooks/",
    "drain": "/workers/",
}
"""The pages of settings, by how their keys begin."""
GONE = ("delete", "forget", "revoke")
"""The actions after which a setting has no page."""


async def audit(ask: PageRequest) -> Shown:
    """Show the newest actions on settings, all or those of a kind or a person."""
    acts = await ask.shared("audit", lambda: ask.app.store.audit(MAX_AUDIT_ENTRIES))
    kind, by, page = ask.given("kind"), ask.given("by"), ask.given("page") or "1"
    number = int(page) if page.isascii() and page.isdecimal() and len(page) < 6 else 1
    kinds = sorted({kind_of(one) for one in acts})
    found = [one for one in acts if kind in (None, kind_of(one)) and by in (None, one.by or "unknown")]
    first = (max(number, 1) - 1) * PAGE_ENTRIES
    data = {
        "rows": [(one, _page_of(one)) for one in found[first : first + PAGE_ENTRIES]],
        "kind": kind or "",
        "kinds": [("", "all"), *((one, one) for one in kinds)],
        "by": by,
        "number": max(number, 1),
        "more": len(found) > first + PAGE_ENTRIES,
        "whole": len(acts) < MAX_AUDIT_ENTRIES,
    }
    return Shown("audit.html", "Audit", data, every=5.0)


def kind_of(one: Audited) -> str:
    """Return the kind of thing that an action changed."""
    return one.key.partition(":")[0]


def _page_of(one: Audited) -> str | None:
    kind, _, name = one.key.partition(":")
    return PATHS[kind] + name if kind in PATHS and name and one.verb not in GONE else None


VIEWS = (PageView("/audit", "audit", audit, "audit"),)
