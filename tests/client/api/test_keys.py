"""Keys through an App, on every engine."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from headrace import App
from headrace.client.api.keys import note_key_use, watch_keys
from headrace.core.auth.api_keys import Permissions, Scope, digest_of
from headrace.errors import ConfigError, KeyTaken, NotGranted, UnknownKey
from headrace.testing import FakeClock
from tests.support.apps import ENGINES, url_of


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


async def test_a_key_is_shown_once_and_kept_as_a_digest(url: str) -> None:
    async with App(url) as app:
        made = await app.keys.create("shop", ["submit", "read"], customer="acme", tasks=["b", "a"], by="ada")
        assert made.text.startswith("hr_")
        assert len(made.text) == 46
        assert made.key.prefix == made.text[:11]
        assert made.text not in repr(made)
        [listed] = await app.keys.list()
        assert listed == made.key
        assert (listed.scopes, listed.customer, listed.tasks) == (("read", "submit"), "acme", ("a", "b"))
        [setting] = await app.session.engine.documents.settings("key:")
        assert digest_of(made.text) in setting.value
        assert made.text not in setting.value
        assert "digest" not in listed.to_dict()
        assert (await app.keys.create("other", ["read"])).text != made.text


async def test_names_are_taken_once(url: str) -> None:
    async with App(url) as app:
        await app.keys.create("shop", ["read"])
        with pytest.raises(KeyTaken, match="'shop'"):
            await app.keys.create("shop", ["read"])
        for name in ("", "hr_shop", "a\nb"):
            with pytest.raises(ConfigError, match="the name of a key"):
                await app.keys.create(name, ["read"])


async def test_a_key_is_revoked_by_its_name_its_prefix_or_itself(url: str) -> None:
    async with App(url) as app:
        made = [await app.keys.create(name, ["read"]) for name in ("a", "b", "c")]
        assert await app.keys.revoke("a") == "a"
        assert await app.keys.revoke(made[1].key.prefix) == "b"
        assert await app.keys.revoke(made[2].text) == "c"
        assert await app.keys.list() == []
        for gone in ("a", made[1].key.prefix, "hr_"):
            with pytest.raises(UnknownKey):
                await app.keys.revoke(gone)
        with pytest.raises(UnknownKey) as raised:
            await app.keys.revoke(made[2].text)
        assert made[2].text not in str(raised.value)


async def test_who_made_and_revoked_it_is_in_the_audit_and_the_key_is_not(url: str) -> None:
    async with App(url) as app:
        made = await app.keys.create("shop", ["read"], customer="acme", by="ada")
        await app.keys.revoke("shop", by="bob")
        revoked, created = await app.store.audit()
        assert (revoked.key, revoked.verb, revoked.by) == ("key:shop", "revoke", "bob")
        assert (created.key, created.verb, created.by) == ("key:shop", "create", "ada")
        assert created.details == {"prefix": made.key.prefix, "scopes": ["read"], "customer": "acme"}


async def test_nobody_grants_what_they_lack(url: str) -> None:
    async with App(url) as app:
        within = Permissions(scopes=frozenset({"admin", "read"}))
        assert (await app.keys.create("a", ["read"], within=within)).key.scopes == ("read",)
        beyond: tuple[Scope, ...] = ("submit", "engine")
        for scope in beyond:
            with pytest.raises(NotGranted):
                await app.keys.create("b", [scope], within=within)
        assert (await app.keys.create("c", ["engine"])).key.scopes == ("engine",)


async def test_it_expires(url: str) -> None:
    clock = FakeClock(datetime(2026, 1, 31, tzinfo=UTC))
    async with App(url, clock=clock) as app:
        made = await app.keys.create("shop", ["read"], expires=timedelta(days=90))
        assert made.key.expires_at == clock.now() + timedelta(days=90)
        for never in (0, -1):
            with pytest.raises(ConfigError, match="expires"):
                await app.keys.create("other", ["read"], expires=never)


async def test_use_is_noted_by_the_hour_and_brings_no_key_back(url: str) -> None:
    clock = FakeClock(datetime(2026, 1, 31, tzinfo=UTC))
    async with App(url, clock=clock) as app:
        await app.keys.create("shop", ["read"])
        await app.keys.create("shop2", ["read"])
        first = clock.now()
        await note_key_use(app, "shop")
        clock.advance(3599)
        await note_key_use(app, "shop")
        assert [key.used_at for key in await app.keys.list()] == [first, None]
        clock.advance(1)
        await note_key_use(app, "shop")
        assert (await app.keys.list())[0].used_at == clock.now()
        await app.keys.revoke("shop")
        await note_key_use(app, "shop")
        assert [key.name for key in await app.keys.list()] == ["shop2"]


async def test_keys_are_followed_from_another_program(url: str) -> None:
    here = App(url)
    there = App(url) if url != "memory://" else here
    async with here, there, aclosing(watch_keys(here)) as rings:
        assert not await anext(rings)
        made = await there.keys.create("shop", ["read"])
        ring = await anext(rings)
        assert [one.key for one in ring.keys] == [made.key]
        await there.keys.revoke("shop")
        assert not await anext(rings)


async def test_a_key_of_another_version_opens_nothing_and_is_there(url: str) -> None:
    async with App(url) as app, aclosing(watch_keys(app)) as rings:
        await anext(rings)
        made = await app.keys.create("shop", ["read"])
        await anext(rings)
        [setting] = await app.session.engine.documents.settings("key:")
        stored = msgspec.json.decode(setting.value)
        stored["key"]["scopes"] = ["read", "fly"]
        await app.session.engine.documents.put_setting("key:shop", msgspec.json.encode(stored).decode(), setting.rev)
        ring = await anext(rings)
        assert ring
        assert (ring.keys, ring.unreadable) == ((), ("shop",))
        assert await app.keys.list() == []
        assert await app.keys.revoke("shop") == made.key.name
