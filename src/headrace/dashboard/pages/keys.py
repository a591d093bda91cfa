"""Keys of the hub: what they may do, when they were used, and a form that makes one."""

from __future__ import annotations

from headrace.client.api.keys import USE_NOTE_INTERVAL
from headrace.core.auth.api_keys import SCOPES
from headrace.dashboard.page import Foreign, PageRequest, PageView, Shown, audit_of

__all__ = ["VIEWS"]


async def keys(ask: PageRequest) -> Shown:
    """Show all keys, without the keys themselves; :raises Foreign: the viewer may not administer the store"""
    if not ask.may("admin"):
        raise Foreign("it needs the scope admin")
    found = await ask.shared("keys", ask.app.keys.list)
    data = {
        "keys": found,
        "expired": {one.name for one in found if one.grant.has_expired(ask.now)},
        # Uses are written down by the hour: a smaller number would say more than is known.
        "lately": {one.name for one in found if one.used_at and ask.now - one.used_at < USE_NOTE_INTERVAL},
        "scopes": [one for one in SCOPES if one in ask.viewer.scopes and one != "engine"],
        "audit": await audit_of(ask, *(f"key:{one.name}" for one in found)),
    }
    return Shown("keys.html", "Keys", data, every=5.0)


VIEWS = (PageView("/keys", "keys", keys, "keys"),)
