"""Operations on keys: make, list, revoke."""

from __future__ import annotations

import msgspec

from headrace.core.auth.api_keys import ApiKey, Scope
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest

__all__ = ["OPERATIONS", "KeyList", "KeyMade", "KeyWanted"]


class KeyWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to be made."""

    name: str
    scopes: tuple[Scope, ...]
    customer: str | None = None
    """It sees and makes only jobs of this customer; null: of all."""
    tasks: tuple[str, ...] | None = None
    """It may submit only these; null: all."""
    queues: tuple[str, ...] | None = None
    """It may submit only to these; null: to all."""
    expires: float | None = None
    """Seconds until it expires; null: never."""
    profiles: int | None = None
    """For how many pairs of task and requirements its customer may have live jobs; null: 100."""


class KeyMade(msgspec.Struct, frozen=True):
    """A new key. It is shown only once."""

    text: str
    key: ApiKey


class KeyList(msgspec.Struct, frozen=True):
    """All keys, without the keys themselves."""

    keys: list[ApiKey]


async def create_key(ask: OperationRequest) -> OperationReply:
    """Make a key, with permissions that the caller has."""
    wanted: KeyWanted = ask.body
    made = await ask.hub.app.keys.create(
        wanted.name,
        wanted.scopes,
        customer=wanted.customer,
        tasks=wanted.tasks,
        queues=wanted.queues,
        expires=wanted.expires,
        profiles=wanted.profiles,
        by=ask.caller.name,
        within=ask.caller,
    )
    return OperationReply(KeyMade(made.text, made.key), 201, {"Cache-Control": "no-store"})


async def list_keys(ask: OperationRequest) -> OperationReply:
    """Return every key, also expired ones."""
    return OperationReply(KeyList(await ask.hub.app.keys.list()))


async def revoke_key(ask: OperationRequest) -> OperationReply:
    """Revoke a key, on every hub."""
    await ask.hub.app.keys.revoke(ask.path["name"], by=ask.caller.name)
    return OperationReply(status=204)


_EXAMPLE = {
    "name": "shop",
    "prefix": "hr_5dQw9cJk",
    "scopes": ["read", "submit"],
    "customer": "customer-123",
    "tasks": None,
    "queues": None,
    "profiles": None,
    "created_at": "2026-01-31T08:00:00Z",
    "created_by": "local",
    "expires_at": "2026-05-01T08:00:00Z",
    "used_at": None,
}

OPERATIONS = (
    Operation(
        method="POST",
        path="/api/keys",
        summary="Make a key, of what you may do yourself; it is shown this once",
        scope="admin",
        do=create_key,
        body=KeyWanted,
        gives={201: KeyMade},
        refuses=(409,),
        example={"name": "shop", "scopes": ["read", "submit"], "customer": "customer-123", "expires": 7776000},
        answered={"text": "hr_5dQw9cJkQyA8s3m0b1n7x2v4c6z8l0k2j4h6g8f0d1s", "key": _EXAMPLE},
    ),
    Operation(
        path="/api/keys",
        summary="List all keys, without the keys themselves",
        scope="admin",
        do=list_keys,
        gives={200: KeyList},
        answered={"keys": [_EXAMPLE]},
    ),
    Operation(
        method="DELETE",
        path="/api/keys/{name:path}",
        summary="Revoke a key by its name or prefix: it is refused, and what it has open is closed, on every hub",
        scope="admin",
        do=revoke_key,
        gives={204: None},
        refuses=(404,),
        path_examples={"name": "shop"},
    ),
)
