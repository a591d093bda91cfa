"""A session with a hub: who is let in, what goes wrong, whose time it is, and what is not held from afar."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from headrace import App, errors
from headrace.core.defaults import Rules
from headrace.core.job import Spec
from headrace.core.lifecycle.submission import submit
from headrace.core.query import Filter
from headrace.engine import Alive, Beat, Gone, Hint, Inserted, Setting, Topic, WorkerInfo, WorkerRow
from headrace.engines.remote import RemoteEngine
from headrace.engines.remote.connection import Address
from headrace.errors import (
    ConfigError,
    EngineError,
    HeadraceError,
    NotOpen,
    NotSupported,
    StoreLost,
    Unavailable,
    Unstorable,
)
from headrace.hub import HubOptions
from headrace.runtime.host import Host
from headrace.testing import FakeClock
from tests.engines.remote.near import Peer, answering, far, opened
from tests.hub.serving import serving
from tests.support.until import until

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def job(payload: str = "{}") -> Any:
    return submit(uuid4(), Spec(task="t", created_at=NOW), payload, NOW)


# -- who is let in


async def test_a_key_without_the_scope_is_told_what_it_lacks() -> None:
    async with App("memory://") as app:
        key = (await app.keys.create("ci", ["read", "submit", "work", "act", "admin"])).text
        async with serving(app) as hub:
            for text, words in (
                (key, "this needs the scope engine"),
                (None, "no key"),
                ("hr_wrong567890", "no such key"),
            ):
                with pytest.raises(ConfigError, match=words) as caught:
                    await far(hub, text).open()
                assert "headrace keys create NAME --scope engine" in str(caught.value)
                assert key[11:] not in str(caught.value)
                if text is not None:
                    assert f"the key {text[:11]}…" in str(caught.value)


async def test_a_key_that_is_revoked_loses_the_store() -> None:
    async with App("memory://") as app:
        key = (await app.keys.create("far", ["engine"])).text
        async with serving(app) as hub, opened(hub, key) as engine:
            assert await engine.records.count(NOW) == []
            await app.keys.revoke("far")
            await until(lambda: len(hub.hub.authenticator._holders) == 0)
            with pytest.raises(StoreLost, match=r"no such key.*headrace keys create") as caught:
                await engine.records.count(NOW)
            assert key[11:] not in str(caught.value)


async def test_a_hub_without_keys_serves_its_own_machine() -> None:
    async with serving("memory://") as hub, opened(hub) as engine:
        [answer] = await engine.jobs.insert([job()], NOW)
        assert isinstance(answer, Inserted)


async def test_below_a_root_path_that_a_proxy_takes_off() -> None:
    options = HubOptions(root_path="/jobs", maintenance=False, webhooks=False)
    async with serving("memory://", options) as hub, opened(hub) as engine:
        assert (await engine.records.ledger()).accepted == 0
    peer = Peer()
    async with answering(peer) as port, opened(port, root="/jobs") as engine:
        with suppress(HeadraceError):
            await engine.records.ledger()
        assert [asked.split()[1] for asked in peer.asked] == [b"/jobs/rpc/hello", b"/jobs/rpc/records/ledger"]


async def test_another_path_of_the_hub_is_none() -> None:
    async with serving("memory://") as hub:
        with pytest.raises(NotSupported, match=r"serves no remote engines \(/x/rpc/hello.*check the path"):
            await far(hub, root="/x").open()


# -- what goes wrong


async def test_a_session_that_is_not_open_says_so() -> None:
    with pytest.raises(NotOpen):
        await far(1).jobs.get([])


async def test_nobody_there_is_refused() -> None:
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:1 cannot be reached") as caught:
        await far(1).open()
    assert caught.value.outcome == "refused"


@pytest.mark.parametrize(
    "error",
    [
        StoreLost("the file is gone", outcome="unknown"),
        Unstorable("half a character"),
        Unavailable("the store is away", outcome="unknown", ids=[uuid4()]),
        Unavailable("the store is away"),
        errors.Overloaded("too many"),
        ConfigError("no such customer"),
    ],
    ids=lambda error: f"{type(error).__name__} {getattr(error, 'outcome', '')}",
)
async def test_an_error_of_the_store_arrives_as_it_was(error: HeadraceError, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> Any:
        raise error

    async with serving("memory://") as hub, opened(hub) as engine:
        monkeypatch.setattr(hub.app.session.engine.jobs, "promote", fail)
        with pytest.raises(type(error)) as caught:
            await engine.jobs.promote(NOW)
        assert type(caught.value) is type(error)
        assert (str(caught.value), vars(caught.value)) == (str(error), vars(error))


async def test_a_fault_of_the_hub_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    async with serving("memory://") as hub, opened(hub) as engine:
        monkeypatch.setattr(hub.app.session.engine.jobs, "promote", fail)
        with pytest.raises(EngineError, match="its log says more") as caught:
            await engine.jobs.promote(NOW)
        assert not isinstance(caught.value, Unavailable)


async def test_what_is_too_large_for_the_hub_is_halved_by_whoever_sent_it() -> None:
    options = HubOptions(bulk_most=10_000, maintenance=False, webhooks=False)
    async with serving("memory://", options) as hub, opened(hub) as engine:
        with pytest.raises(Unstorable, match="more than the 10000 that the hub takes"):
            await engine.jobs.insert([job("x" * 6000), job("x" * 6000)], NOW)
        assert len(await engine.jobs.insert([job("x" * 6000)], NOW)) == 1
        engine._calls._most = None  # as if another hub, which takes less, had the call now
        with pytest.raises(Unstorable, match="the body may have 10000 bytes"):
            await engine.jobs.insert([job("x" * 12_000)], NOW)


PROBLEM = "application/problem+json"


@pytest.mark.parametrize(
    ("answer", "kind", "outcome", "words"),
    [
        ((502, "text/html", b"<h1>Bad gateway</h1>"), Unavailable, "unknown", "answered 502"),
        ((504, "text/html", b""), Unavailable, "unknown", "answered 504"),
        ((503, PROBLEM, b'{"type":"https://x/stopping","detail":"not ready"}'), Unavailable, "unknown", "not ready"),
        ((503, PROBLEM, b'{"type":"https://x/draining","detail":"going"}'), Unavailable, "refused", "going"),
        ((429, PROBLEM, b'{"type":"https://x/too-many","detail":"slow"}'), Unavailable, "refused", "slow"),
        ((404, "text/html", b"<h1>nginx</h1>"), Unavailable, "unknown", "something in front of the hub"),
        ((403, "text/html", b"<h1>firewall</h1>"), Unavailable, "unknown", "in its place"),
        ((200, "text/html", b"<h1>hi</h1>"), Unavailable, "unknown", "in its place"),
        ((503, PROBLEM, b"{"), Unavailable, "unknown", "in its place"),
        ((404, PROBLEM, b'{"type":"https://x/no-such-path"}'), NotSupported, None, "does not know jobs/promote"),
        ((400, PROBLEM, b'{"type":"https://x/malformed","detail":"odd"}'), NotSupported, None, "understand.*odd"),
        ((200, "application/msgpack", b"\xa3abc"), EngineError, None, "does not understand"),
    ],
)  # fmt: skip
async def test_other_answers_are_understood(
    answer: tuple[int, str, bytes], kind: type[HeadraceError], outcome: str | None, words: str
) -> None:
    peer = Peer()
    async with answering(peer) as port, opened(port) as engine:
        peer.answer = answer
        with pytest.raises(kind, match=words) as caught:
            await engine.jobs.promote(NOW)
        assert getattr(caught.value, "outcome", None) == outcome


@pytest.mark.parametrize("status", [200, 404, 403])
async def test_what_is_no_hub_is_not_opened(status: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d X\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi" % status)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        with pytest.raises(ConfigError, match=f"no hub of headrace at .*answered {status} .*check the path"):
            await far(server.sockets[0].getsockname()[1]).open()


async def test_a_hub_that_drains_is_asked_once_more_on_another_connection() -> None:
    peer = Peer()
    async with answering(peer) as port, opened(port) as engine:
        peer.answer = (503, PROBLEM, b'{"type":"https://x/draining"}')
        before = len(peer.asked)
        with pytest.raises(Unavailable):
            await engine.jobs.promote(NOW)
        assert len(peer.asked) == before + 2


async def test_a_question_survives_a_kept_connection_that_the_hub_had_closed() -> None:
    """A write does not: whether it happened is for its caller to find out, who knows how."""
    async with serving("memory://") as hub, opened(hub) as engine:

        async def asked(question: Coroutine[Any, Any, Any]) -> Any:
            [connection] = hub.server.server_state.connections
            connection.transport.pause_reading()
            asking = asyncio.create_task(question)
            await asyncio.sleep(0)
            connection.transport.abort()
            return await asking

        assert await asked(engine.jobs.get([uuid4()])) == [None]
        with pytest.raises(Unavailable, match="the connection was lost") as caught:
            await asked(engine.jobs.promote(NOW))
        assert caught.value.outcome == "unknown"


# -- time


async def test_time_is_the_hubs_where_the_store_has_none() -> None:
    clock = FakeClock()
    app = App("memory://", clock=clock)
    async with serving(app) as hub, opened(hub) as engine:
        assert await engine.time() == clock.now()
        clock.advance(hours=5)
        assert await engine.time() == clock.now()
        info = WorkerInfo(id=uuid4(), host="h", pid=1, started_at=NOW, concurrency=1)
        await engine.workers.register(info, NOW)
        said = await engine.workers.beat(info.id, Beat(), NOW)
        assert isinstance(said, Alive)
        assert said.now == clock.now()
        both = await engine.workers.beat_many({info.id: Beat(), uuid4(): Beat()}, NOW)
        assert [getattr(one, "now", None) for one in both.values()] == [clock.now(), None]


async def test_what_is_written_is_dated_by_whoever_writes_it() -> None:
    async with serving("memory://") as hub, opened(hub) as engine:
        one = job()
        await engine.jobs.insert([one], NOW)
        [stored] = await engine.jobs.get([one.id])
        assert stored is not None
        assert stored.arrived_at == NOW
        assert (await engine.records.find(Filter(), NOW + timedelta(days=1))).items == (stored,)


# -- what is of one process


async def test_the_connection_is_all_that_shows_that_a_worker_far_away_lives() -> None:
    async with serving("memory://") as hub, opened(hub) as engine:
        attended = await engine.workers.attend(uuid4())
        assert attended is not None
        assert (attended.judged, attended.descriptor) == (False, None)
        assert (engine.transactions, engine.direct) == (None, None)
        assert engine.workers.gone_after == hub.app.session.engine.workers.gone_after


def row(slots: int, proof: str) -> WorkerRow:
    """A worker that says how its death can be proved."""
    info = WorkerInfo(id=uuid4(), host="h", pid=1, started_at=NOW, concurrency=slots, proof=proof)
    return WorkerRow(info, Beat(), 0, NOW, True, 0)


async def test_a_hub_is_not_asked_for_those_of_whom_nobody_here_must_know(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()
    async with serving("memory://") as hub, opened(hub) as engine:

        async def gone(rows: Sequence[WorkerRow]) -> Gone:
            asked.append(len(rows))
            return Gone()

        monkeypatch.setattr(hub.app.session.engine.workers, "gone", gone)
        far, program, worker = row(1, "hub 1234"), row(0, "held"), row(1, "held")
        assert await engine.workers.gone([far, program]) == Gone()
        assert asked == []
        await engine.workers.gone([far, program, worker])
        assert asked == [1]


async def test_findings_of_two_hubs_say_nothing_about_each_other() -> None:
    found = list[Gone]()
    async with App("memory://") as app, serving(app) as here, serving(app) as there:
        for hub in (here, here, there):
            async with opened(hub) as engine:
                found.append(await engine.workers.gone([row(1, "held")]))
    assert found[0] == found[1] != found[2]
    assert found[0].workers == Gone().workers


async def test_a_store_behind_a_hub_is_there_and_up_to_date() -> None:
    async with serving("memory://") as hub:
        engine = far(hub)
        assert await engine.exists()
        assert await engine.migrate() == []
    with pytest.raises(Unavailable):
        await engine.exists()


async def test_the_doctor_names_the_hub_and_what_is_set_otherwise_there(tmp_path: Any) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub, opened(hub) as engine:
        checks = {check.name: check for check in await engine.check(NOW)}
        assert "has the store (sqlite)" in checks["hub"].message
        assert "settings" not in checks
        engine.rules = msgspec.structs.replace(engine.rules, lease=99.0)
        [told] = [check for check in await engine.check(NOW) if check.name == "settings"]
        assert (told.level, "other values for lease" in told.message) == ("warn", True)


async def test_settings_are_compared_and_set_over_the_wire() -> None:
    async with serving("memory://") as hub, opened(hub) as engine:
        first = await engine.documents.put_setting("queue:a", "{}", 0)
        assert isinstance(first, Setting)
        assert await engine.documents.put_setting("queue:a", "{}", 0) is None


# -- as an App


async def test_code_without_a_loop_submits_and_waits() -> None:
    async def double(n: int) -> int:
        return 2 * n

    near, remote = App("memory://"), App()
    near.task(double)
    task = remote.task(double)

    def without_a_loop(url: str) -> int:
        with remote.override(url=url):
            return remote.wait(task.submit_sync(4).result(timeout=60))

    async with serving(near) as hub, near.worker():
        assert await asyncio.to_thread(without_a_loop, f"hub+{hub.address}") == 8


def test_a_key_is_not_shown_where_an_app_is() -> None:
    key = "hr_0123456789hushhush"
    app = App("hub+https://jobs.example", key=key)
    assert "hush" not in f"{app!r} {app.settings!r} {app._new_engine()!r} {vars(app)!r}"
    assert app.settings.key == key


# -- over TLS


async def test_a_certificate_must_be_trusted(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, secret = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    named = ["-keyout", str(secret), "-out", str(cert), "-days", "2", "-subj", "/CN=localhost"]
    await asyncio.to_thread(
        subprocess.run, [*made, *named, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True
    )
    options = HubOptions(certfile=str(cert), keyfile=str(secret), maintenance=False, webhooks=False)
    async with serving("memory://", options) as hub:
        port = int(hub.address.rpartition(":")[2])
        engine = RemoteEngine(Address(host="127.0.0.1", port=port, tls=True), rules=Rules(), host=Host())
        with pytest.raises(Unavailable, match=r"certificate is not trusted .*SSL_CERT_FILE") as caught:
            await engine.open()
        assert caught.value.outcome == "refused"
        with pytest.raises((Unavailable, ConfigError)):
            await far(hub).open()  # as if it spoke plain HTTP
        async with serving("memory://") as plain:
            port = int(plain.address.rpartition(":")[2])
            with pytest.raises(Unavailable, match=r"no TLS .*is it hub\+http://"):
                await RemoteEngine(Address(host="127.0.0.1", port=port, tls=True), rules=Rules(), host=Host()).open()
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        await engine.open()
        heard = list[Hint]()
        engine.bus.listen(frozenset({Topic.READY}), heard.append)
        assert await engine.jobs.get([uuid4()]) == [None]
        engine.bus.send(Hint(Topic.READY, ("q",)))
        await until(lambda: heard)
        await engine.close()


async def test_results_that_are_too_large_together_are_written_one_after_the_other() -> None:
    near, remote = App("memory://"), App()
    options = HubOptions(bulk_most=20_000, maintenance=False, webhooks=False)

    @remote.task
    async def echo(text: str) -> str:
        return text

    async with serving(near, options) as hub:
        with remote.override(url=f"hub+{hub.address}"):
            async with remote:
                handles = [await echo.submit("x" * 6000) for _ in range(12)]
                async with remote.worker():
                    assert {await handle.result(timeout=60) for handle in handles} == {"x" * 6000}
