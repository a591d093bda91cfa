"""Who can read the store is no operator: what its contents are worth to a forger, with and without a secret."""

from __future__ import annotations

import base64
import hmac
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from headrace import App
from headrace.client.api.store import shared_secret
from headrace.client.api.webhooks import webhook_credentials
from headrace.core.auth.tokens import JobLease
from headrace.core.defaults import DASHBOARD_SESSION_LIFETIME
from headrace.dashboard import Viewer
from headrace.dashboard.security import COOKIE
from headrace.dashboard.security import Tokens as FormTokens
from headrace.endpoints.tokens import Tokens
from headrace.errors import SecretMismatch
from headrace.hub import HubOptions
from headrace.hub.auth.login import SESSION
from headrace.hub.webhooks import webhook_worker
from headrace.hub.webhooks.sender import signature
from headrace.runtime.secrets import SECRET_GRACE, Vault
from headrace.testing.clock import FakeClock
from tests.hub.auth.forger import Forger
from tests.hub.auth.test_login import browser_of, log_in, token_of
from tests.hub.serving import serving
from tests.hub.webhooks.receiving import Names, receiving
from tests.support.apps import Sums, url_of
from tests.support.until import until

STORES = ("sqlite", "postgres")
QUIET = HubOptions(maintenance=False, webhooks=False)
SECRET, OTHER = "a secret of this test, and of no other", "another secret that is no less long"


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


def _signed_as_before(secret: bytes, *parts: str) -> str:
    """As sessions were signed when the store had what to sign them with."""
    text = "\0".join(f"{len(part)}:{part}" for part in parts)
    return base64.urlsafe_b64encode(hmac.digest(secret, text.encode(), sha256)).decode().rstrip("=")


async def test_no_session_can_be_made_or_replayed_from_what_the_store_has(url: str) -> None:
    app = App(url)
    async with app:
        made = await app.keys.create("ops", ["read", "admin"])
        async with serving(app, QUIET) as served, browser_of(served) as client, browser_of(served) as thief:
            await log_in(client, made.text)
            assert (await client.get("/jobs")).status_code == 200
            forger, prefix = await Forger.reads(app), made.key.prefix
            session = client.cookies[SESSION]
            assert session not in forger.texts
            assert session.partition(".")[2] not in forger.texts
            until_ = str(int((app.host.clock.now() + DASHBOARD_SESSION_LIFETIME).timestamp()))
            tried = {f"{prefix}.{text}" for text in forger.texts if text.isascii()} | forger.texts
            for data in forger.secrets:
                tried.add(f"{prefix}.{base64.urlsafe_b64encode(data).decode().rstrip('=')}")
                for digest in forger.texts:
                    if len(digest) == 64:
                        sign = _signed_as_before(data, "session", prefix, until_, "n", digest)
                        tried.add(f"{prefix}.{until_}.n.{sign}")
            for cookie in tried:
                if cookie.isascii() and cookie.isprintable() and not set(cookie) & set(' ;,"\\'):
                    got = await thief.get("/jobs", headers={"cookie": f"{SESSION}={cookie}"})
                    assert got.status_code == 303, cookie
            assert (await client.get("/jobs")).status_code == 200


async def test_a_session_holds_at_every_hub_and_ends_at_every_hub(url: str) -> None:
    app, second = App(url), App(url)
    async with app, second:
        made = await app.keys.create("ops", ["read"])
        async with (
            serving(app, QUIET) as here,
            serving(second, QUIET) as there,
            browser_of(here) as client,
            browser_of(there) as other,
        ):
            await log_in(client, made.text)
            session = client.cookies[SESSION]
            cookie = {"cookie": f"{SESSION}={session}"}
            assert (await other.get("/jobs", headers=cookie)).status_code == 200
            assert (await client.post("/logout", data={"token": await token_of(client)})).status_code == 303
            assert (await client.get("/jobs", headers=cookie)).status_code == 303, "who kept the cookie is out, too"

            async def ended() -> bool:
                return (await other.get("/jobs", headers=cookie)).status_code == 303

            await until(ended)
            assert not await app.session.engine.documents.settings("sessions:"), "nothing is left of it"


async def test_a_revoked_key_leaves_no_session(url: str) -> None:
    app = App(url)
    async with app:
        made = await app.keys.create("ops", ["read"])
        async with serving(app, QUIET) as served, browser_of(served) as client:
            await log_in(client, made.text)
            assert await app.session.engine.documents.settings("sessions:")
            await app.keys.revoke("ops")
            assert not await app.session.engine.documents.settings("sessions:")


async def test_no_form_can_be_signed_with_what_the_store_has(url: str) -> None:
    """Not even for a browser whose other cookie the forger has set, as a page of another port of the machine can."""
    async with App(url) as app:
        made = await app.keys.create("ops", ["read", "act"])
        async with serving(app, QUIET) as served, browser_of(served) as client:
            await log_in(client, made.text)
            right, forms = await token_of(client), client.cookies[COOKIE]
            viewer = Viewer(name="ops", key=made.key.prefix, scopes=frozenset({"read", "act"}))
            forger = await Forger.reads(app)
            for session in (None, *forger.texts):
                for data in forger.secrets:
                    assert FormTokens(data).token(forms, msgspec.structs.replace(viewer, session=session)) != right
            assert (await client.post("/logout", data={"token": right})).status_code == 303


@pytest.mark.parametrize("secret", [None, SECRET], ids=["stored", "derived"])
async def test_leases_and_tokens(url: str, secret: str | None) -> None:
    """Without a secret the forger succeeds, which is what the guide says."""
    app = App(url, secret=secret)
    async with serving(app, QUIET) as served:
        signing, lease = served.hub.fleet.signing, JobLease(uuid4(), 3, uuid4())
        assert await signing.read_lease(None, await signing.lease(None, lease)) == lease
        forger = await Forger.reads(app)
        read = [
            await signing.read_lease(None, text) or await signing.read_token(None, text)
            for text in forger.leases(None, lease)
        ]
        assert any(read) is (secret is None)


@pytest.mark.parametrize("secret", [None, SECRET], ids=["stored", "derived"])
async def test_messages_of_webhooks(url: str, secret: str | None) -> None:
    sums = Sums(url)
    app = sums.app if secret is None else App(url, secret=secret)
    options = HubOptions(webhook_allow=("127.0.0.0/8",), webhook_http=True)
    async with sums.app, app, receiving() as receiver, webhook_worker(app, options, resolver=Names(["127.0.0.1"])):
        address = f"http://hooks.example:{receiver.port}/"
        made = await app.webhooks.add(address, events=["submitted"])
        first = made.secret
        await sums.add.submit(1, 2)
        await until(lambda: len(receiver.requests) == 1)
        [request] = receiver.requests
        Webhook(first).verify(request.body, request.headers)
        again = await app.webhooks.rotate(made.webhook.id)
        assert again.secret != first
        await sums.add.submit(3, 4)
        await until(lambda: len(receiver.requests) == 2)
        for one in (first, again.secret):  # the old one signs for a day
            Webhook(one).verify(receiver.requests[1].body, receiver.requests[1].headers)
        forger, headers = await Forger.reads(app), request.headers
        found = [
            one
            for one in forger.webhook_secrets()
            if signature(one, headers["webhook-id"], int(headers["webhook-timestamp"]), request.body)
            in headers["webhook-signature"].split()
        ]
        assert bool(found) is (secret is None)
        with pytest.raises(WebhookVerificationError):
            Webhook("whsec_" + base64.b64encode(b"x" * 32).decode()).verify(request.body, headers)


@pytest.mark.parametrize("secret", [None, SECRET], ids=["stored", "derived"])
async def test_addresses_of_public_status_pages(url: str, secret: str | None) -> None:
    async with App(url, secret=secret) as app:
        tokens, id = Tokens(app), uuid4()
        await tokens.ready()
        assert tokens.opens(id, tokens.of(id))
        forger = await Forger.reads(app)
        opened = list[bool]()
        for data in forger.secrets:
            forged = Tokens(app, data.ljust(16, b"\0"))
            opened.append(tokens.opens(id, forged.of(id)))
        assert any(opened) is (secret is None)


# -- taking up a secret, and changing it


async def test_what_was_signed_before_counts_for_a_day(tmp_path: Path) -> None:
    clock, url = FakeClock(), f"sqlite:///{tmp_path}/jobs.db"
    lease, id = JobLease(uuid4(), 1, uuid4()), uuid4()
    async with App(url, clock=clock) as before, serving(before, QUIET) as served:
        tokens = Tokens(before)
        await tokens.ready()
        old, page = await served.hub.fleet.signing.lease(None, lease), tokens.of(id)
        webhook = await before.webhooks.add("https://hooks.example/")
    async with App(url, clock=clock, secret=SECRET) as app, serving(app, QUIET) as served:
        signing, tokens = served.hub.fleet.signing, Tokens(app)
        await tokens.ready()
        assert await signing.read_lease(None, old) == lease, "a worker goes on with what it has"
        assert await signing.lease(None, lease) != old
        assert tokens.opens(id, page)
        assert tokens.of(id) != page
        assert (await webhook_credentials(app, webhook.webhook.id)).signing(clock.now()) == [webhook.secret]
        told = {one.message: one.level for one in await app.store.doctor() if one.name == "secret"}
        assert sorted(told.values()) == ["ok", "warn"]
        assert any(webhook.webhook.id in message for message in told), "it is to be rotated"
        await app.webhooks.rotate(webhook.webhook.id, keep=0)
        assert {one.level for one in await app.store.doctor() if one.name == "secret"} == {"ok"}
        clock.advance(SECRET_GRACE.total_seconds() + 1)
        assert await signing.read_lease(None, old) is None
        assert not tokens.opens(id, page)
        again = Tokens(app)
        await again.ready()
        assert not again.opens(id, page)
        kept = await app.session.engine.documents.settings()
        assert not any("data" in one.value for one in kept if one.key == "lease-secret"), "nor is it stored any more"
        assert not any(one.key == "endpoints-secret" for one in kept)


async def test_what_was_signed_before_can_be_forgotten_at_once(tmp_path: Path) -> None:
    clock, url, lease = FakeClock(), f"sqlite:///{tmp_path}/jobs.db", JobLease(uuid4(), 1, uuid4())
    async with App(url, clock=clock) as before, serving(before, QUIET) as served:
        old = await served.hub.fleet.signing.lease(None, lease)
    async with App(url, clock=clock, secret=SECRET) as app, serving(app, QUIET) as served:
        await app.keys.rotate_leases(forget=True)
        assert await served.hub.fleet.signing.read_lease(None, old) is None
        assert not any("data" in one.value for one in await app.session.engine.documents.settings("lease-secret"))


@pytest.mark.parametrize("other", [None, OTHER], ids=["none", "another"])
async def test_a_hub_with_another_secret_does_not_start(url: str, other: str | None) -> None:
    async with App(url, secret=SECRET) as app, serving(app, QUIET):
        stranger = App(url, secret=other)
        with pytest.raises(SecretMismatch, match=r"HEADRACE_SECRET.*replace-secret"):
            async with serving(stranger, QUIET):
                pass
        async with stranger:
            [found] = [one for one in await stranger.store.doctor() if one.name == "secret"]
            assert found.level == ("warn" if other is None else "fail")
            for wrong in (
                stranger.webhooks.add("https://hooks.example/"),
                stranger.keys.rotate_leases(),
                shared_secret(stranger.session.vault, "x"),
            ):
                with pytest.raises(SecretMismatch):
                    await wrong
        [fine] = [one for one in await app.store.doctor() if one.name == "secret"]
        assert fine.level == "ok"


async def test_a_hub_whose_secret_was_replaced_signs_no_more(url: str) -> None:
    """Others would refuse what it signs; whoever asks it is told to ask again, elsewhere."""
    async with App(url, secret=SECRET) as app, App(url, secret=OTHER) as new, serving(app, QUIET) as served:
        signing, lease = served.hub.fleet.signing, JobLease(uuid4(), 1, uuid4())
        old = await signing.lease(None, lease)
        webhook = await app.webhooks.add("https://hooks.example/")
        assert await new.keys.replace_secret() == [webhook.webhook.id]
        signing._read_at = float("-inf")  # ten seconds later
        with pytest.raises(SecretMismatch):
            await signing.lease(None, lease)
        answer = await served.client.post("/api/work/register_worker", json={"worker_id": "w", "tasks": ["work"]})
        assert answer.status_code == 503
        async with serving(new, QUIET) as next_one:
            assert await next_one.hub.fleet.signing.read_lease(None, old) is None


async def test_a_store_can_do_without_a_secret_again(url: str) -> None:
    async with App(url, secret=SECRET) as app, serving(app, QUIET):
        pass
    async with App(url) as app:
        assert await app.keys.replace_secret() == []
        async with serving(app, QUIET) as served:
            lease = JobLease(uuid4(), 1, uuid4())
            signing = served.hub.fleet.signing
            assert await signing.read_lease(None, await signing.lease(None, lease)) == lease


async def test_two_who_take_up_different_secrets_at_once_are_told(url: str) -> None:
    async with App(url) as app:
        one, other = (Vault(app.session.engine, app.host, secret) for secret in (SECRET, OTHER))
        assert await one.derives()
        with pytest.raises(SecretMismatch):
            await other.derives()
        same = Vault(app.session.engine, app.host, SECRET)
        assert await same.derives()
        assert same.derived("webhook", "a", "b") == one.derived("webhook", "a", "b")
        assert len({one.derived(*names) for names in (("webhook", "a"), ("lease", "a"), ("webhook", "a", ""))}) == 3


async def test_the_secret_is_in_no_message_and_nowhere_in_the_store(url: str) -> None:
    async with App(url, secret=SECRET) as app, serving(app, QUIET):
        await app.webhooks.add("https://hooks.example/")
        assert SECRET not in repr(app) + repr(app.settings) + str(await app.store.audit())
        assert not any(SECRET in one.value for one in await app.session.engine.documents.settings())
