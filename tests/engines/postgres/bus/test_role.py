"""Hints through PostgreSQL: who listens hears, a dead listener is replaced, and nothing fails when they are lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Self

import asyncpg
import msgspec
import pytest

from headrace.engine.bus import Hint, Topic
from headrace.engines.postgres.bus.notify import BURST_NOTIFICATIONS, GAP_SECONDS, Channels, Throttle
from headrace.engines.postgres.bus.role import NotifyBus
from headrace.runtime.host import Host
from tests.support.servers.postgres import Server, shared
from tests.support.servers.proxy import Proxy
from tests.support.until import until

BEAT = 0.2
CALM = 600.0
"""A beat with which no connection is taken for dead, however busy the machine: then hints would be missed."""
ALL = frozenset(Topic)
LISTENERS = "headrace listener"
TELL = "SELECT pg_notify(channel, payload) FROM unnest($1::text[], $2::text[]) AS t (channel, payload)"


class Session(NotifyBus):
    """A bus with a pool of its own, and a record of what it sent, heard and connected."""

    def __init__(
        self, url: str, *, schema: str = "headrace", beat: float = CALM, listens: bool = True, listen_url: str = ""
    ) -> None:
        super().__init__(schema, Host(), notify=self._tell_all, connect=self._join if listens else None, beat=beat)
        self._url, self._listen_url = url, listen_url or url
        self.channels = Channels(schema)
        self.sent: list[tuple[str, str]] = []
        self.tellings = 0
        self.joined = 0
        self.heard: list[Hint] = []

    async def __aenter__(self) -> Self:
        self.pool = await asyncpg.create_pool(self._url, min_size=0, max_size=2)
        self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
        self.pool.terminate()

    def hear(self, *topics: Topic) -> Callable[[], None]:
        """Listen and record."""
        return self.listen(frozenset(topics), self.heard.append)

    async def deaf_no_more(self) -> None:
        """Wait until the server carries hints to this session: it has heard itself, and been told to look before."""
        await until(
            lambda: (
                self._listener is not None
                and self._listener.hears
                and self._listener._heard_probe >= self._listener._first
            )
        )

    def names(self, topic: Topic) -> list[str]:
        return [name for hint in self.heard if hint.topic is topic for name in hint.names]

    def sent_to(self, channel: str) -> list[str]:
        return [payload for where, payload in self.sent if where == channel]

    @property
    def probes(self) -> int:
        return len(self.sent_to(self.channels.private(self._own)))

    async def _tell_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        await self.pool.fetch(TELL, [channel for channel, _ in pairs], [payload for _, payload in pairs])
        self.tellings += 1
        self.sent += pairs

    async def _join(self) -> asyncpg.Connection[asyncpg.Record]:
        self.line = await asyncpg.connect(self._listen_url, server_settings={"application_name": LISTENERS})
        self.joined += 1
        return self.line

    async def tuned(self) -> set[str]:
        """The channels the server listens to for this session."""
        return {row[0] for row in await self.line.fetch("SELECT pg_listening_channels()")}


@pytest.fixture
def url() -> str:
    """A database of the test's own: notifications stay within it."""
    return shared().url(shared().create_database())


@pytest.fixture
async def witness(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


async def ears(witness: asyncpg.Connection[asyncpg.Record]) -> int:
    """How many sessions have a listening connection, as the server sees it."""
    where = "datname = current_database() AND application_name = $1"
    return int(await witness.fetchval(f"SELECT count(*) FROM pg_stat_activity WHERE {where}", LISTENERS))


# Telling and hearing


async def test_sessions_hear_one_another_and_themselves_once(url: str) -> None:
    async with Session(url) as one, Session(url) as two:
        for session in (one, two):
            session.hear(Topic.READY)
            await session.deaf_no_more()
        one.send(Hint(Topic.READY, ("a", "ü")))
        await until(lambda: len(two.names(Topic.READY)) == 2)
        two.send(Hint(Topic.READY, ("back",)))
        await until(lambda: "back" in one.names(Topic.READY))
        assert sorted(one.names(Topic.READY)) == sorted(two.names(Topic.READY)) == ["a", "back", "ü"]


async def test_a_hint_is_delivered_here_even_if_nobody_else_can_hear_it() -> None:
    async with Session("postgresql://nobody@127.0.0.1:1/nowhere") as alone:
        alone.hear(Topic.ENDED)
        alone.send(Hint(Topic.ENDED, ("job",)))
        await until(lambda: alone.names(Topic.ENDED) == ["job"])


async def test_a_listener_hears_its_topics_only(url: str) -> None:
    async with Session(url) as one, Session(url) as two:
        two.hear(Topic.CANCEL)
        await two.deaf_no_more()
        one.send(Hint(Topic.SETTINGS, ("s",)))
        one.send(Hint(Topic.CANCEL, ("c",)))
        await until(lambda: bool(two.heard))
        assert two.heard == [Hint(Topic.CANCEL, ("c",))]


async def test_schemas_do_not_hear_one_another(url: str) -> None:
    async with Session(url) as one, Session(url, schema="other") as other, Session(url) as two:
        for session in (two, other):
            session.hear(Topic.CANCEL)
            await session.deaf_no_more()
        one.send(Hint(Topic.CANCEL, ("one",)))
        await until(lambda: bool(two.heard))
        assert other.heard == []


async def test_who_begins_to_listen_is_told_to_look_since_hints_may_have_been_missed(url: str) -> None:
    async with Session(url) as session:
        session.hear(*ALL)
        await until(lambda: len(session.heard) == 3)
        assert set(session.heard) == {Hint(Topic.READY), Hint(Topic.SETTINGS), Hint(Topic.CHANGED)}


async def test_many_ids_all_arrive(url: str) -> None:
    ids = {f"{at:08}-0000-7000-8000-000000000000" for at in range(2000)}
    async with Session(url) as one, Session(url) as two:
        two.hear(Topic.CANCEL)
        await two.deaf_no_more()
        one.send(Hint(Topic.CANCEL, tuple(ids)))
        await until(lambda: set(two.names(Topic.CANCEL)) == ids)


async def test_a_hint_may_come_from_any_thread(url: str) -> None:
    async with Session(url) as session:
        session.hear(Topic.READY)
        thread = threading.Thread(target=session.send, args=[Hint(Topic.READY, ("there",))])
        thread.start()
        await until(lambda: session.names(Topic.READY) == ["there"])
        thread.join()


async def test_noise_is_ignored(url: str, witness: asyncpg.Connection[asyncpg.Record]) -> None:
    async with Session(url) as session:
        session.hear(Topic.READY)
        await session.deaf_no_more()
        assert session.heard == [Hint(Topic.READY)]  # once, on beginning to listen: something may have been missed
        session.heard.clear()
        noise = ["", "noise", "[]", '{"a": 1}', "[1, 2]", '["x", [1]]']
        for channel in [*session.channels.topics, session.channels.calls, session.channels.private(session._own)]:
            await witness.execute(TELL, [channel] * len(noise), noise)
        await witness.execute(TELL, [session.channels.of(Topic.READY)], ['["", ["clear"]]'])
        await until(lambda: bool(session.heard))
        assert session.heard == [Hint(Topic.READY, ("clear",))]
        assert session.joined == 1


async def test_names_no_text_can_hold_fail_nobody(url: str) -> None:
    async with Session(url) as one, Session(url) as two:
        two.hear(Topic.CANCEL)
        await two.deaf_no_more()
        one.send(Hint(Topic.CANCEL, ("\ud800",)))
        one.send(Hint(Topic.CANCEL, ("nul \0",)))
        await until(lambda: "nul \0" in two.names(Topic.CANCEL))


# How often


async def test_a_burst_is_told_once_a_gap(url: str) -> None:
    async with Session(url) as one, Session(url) as two:
        two.hear(Topic.READY)
        await two.deaf_no_more()
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(1000):
            one.send(Hint(Topic.READY, ("busy",)))
            await asyncio.sleep(0)
        before_last = len(one.sent)
        one.send(Hint(Topic.READY, ("busy",)))
        await until(lambda: len(one.sent) > before_last)
        gaps = (loop.time() - began) / GAP_SECONDS
        assert len(one.sent) <= gaps + 2 + BURST_NOTIFICATIONS
        await until(lambda: len(two.names(Topic.READY)) == len(one.sent))


async def test_an_idle_worker_says_little(url: str) -> None:
    async with Session(url, beat=BEAT) as session:
        loop = asyncio.get_running_loop()
        began = loop.time()
        session.hear(Topic.READY, Topic.SETTINGS, Topic.CANCEL)
        await until(lambda: session.tellings >= 5)
        assert session.tellings <= (loop.time() - began) / BEAT + 2
        assert session.tellings == session.probes
        assert len(session.sent_to(session.channels.calls)) <= session.joined


async def test_who_neither_listens_nor_sends_says_nothing(
    url: str, witness: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with Session(url, beat=BEAT) as session:
        await asyncio.sleep(BEAT * 2)
        assert (session.tellings, session.joined, await ears(witness)) == (0, 0, 0)


# Hints that travel with a statement


async def commit(session: Session, pairs: Sequence[tuple[str, str]]) -> None:
    await session.pool.fetch(TELL, [channel for channel, _ in pairs], [payload for _, payload in pairs])


async def test_a_hint_that_went_with_a_statement_is_not_told_again(url: str) -> None:
    async with Session(url) as two:
        two.hear(Topic.READY)
        await two.deaf_no_more()
        async with Session(url) as one:
            one.hear(Topic.READY)
            await one.deaf_no_more()
            pairs = one.ready_now({"a"})
            await commit(one, pairs)
            one.ready_told(pairs)
            one.send(Hint(Topic.READY, ("a",)))
            await until(lambda: one.names(Topic.READY) == two.names(Topic.READY) == ["a"])
        # What waits to be told is told at close at the latest.
        assert one.sent_to(one.channels.of(Topic.READY)) == []


async def test_each_hint_that_went_with_a_statement_is_counted(url: str) -> None:
    async with Session(url) as one:
        one._throttle = Throttle(gap=0)
        pairs = [*one.ready_now(["a"]), *one.ready_now(["a"])]
        assert len(pairs) == 2
        one.ready_told(pairs)
        one.send(Hint(Topic.READY, ("a",)))
        one.send(Hint(Topic.READY, ("a",)))
    assert one.sent == []


async def test_a_statement_that_failed_takes_no_hint_with_it(url: str) -> None:
    async with Session(url) as one, Session(url) as two:
        two.hear(Topic.READY)
        await two.deaf_no_more()
        one._throttle = Throttle(burst=0)
        assert one.ready_now(["a"])
        assert one.ready_now(["a"]) == []
        one.send(Hint(Topic.READY, ("a",)))
        await until(lambda: two.names(Topic.READY) == ["a"])


async def test_a_hint_that_waits_goes_along_with_the_next_statement(url: str) -> None:
    async with Session(url) as one:
        one._throttle = Throttle(gap=600, burst=0)
        one._throttle.pass_by(Topic.READY, ["a"], one._host.clock.monotonic() - 400)
        one.send(Hint(Topic.READY, ("a",)))  # which has to wait
        pairs = one.ready_now(["a"])
        assert len(pairs) == 1
        one.ready_told(pairs)
        one.send(Hint(Topic.READY, ("a",)))
    assert one.sent == []


async def test_the_sender_is_woken_only_if_it_would_look_too_late(url: str) -> None:
    async with Session(url) as one:
        one._throttle = Throttle(gap=600, burst=0)
        one._throttle.pass_by(Topic.READY, ["a"], one._host.clock.monotonic() - 400)
        one.send(Hint(Topic.READY, ("a",)))
        assert one._said.is_set()
        await until(lambda: not one._said.is_set())  # it waits until that hint is due
        one.ready_told(one.ready_now(["a"]))
        one.send(Hint(Topic.READY, ("a",)))  # which went along
        one.send(Hint(Topic.READY, ("a",)))  # which is due later
        assert one._throttle.due() is not None
        assert not one._said.is_set()
        one.send(Hint(Topic.SETTINGS, ("b",)))  # which is due now
        assert one._said.is_set()
        await until(lambda: bool(one.sent))


async def test_of_two_statements_the_one_that_carried_nothing_is_told(url: str) -> None:
    async with Session(url) as one, Session(url) as two:
        two.hear(Topic.READY)
        await two.deaf_no_more()
        pairs = one.ready_now(["a"])
        await commit(one, pairs)
        one.ready_told(pairs)
        one.send(Hint(Topic.READY, ("a",)))
        one.send(Hint(Topic.READY, ("a",)))
        await until(lambda: two.names(Topic.READY) == ["a", "a"])


async def test_a_hint_in_a_transaction_is_heard_when_that_commits(
    url: str, witness: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with Session(url) as one, Session(url) as two:
        for session in (one, two):
            session.hear(Topic.READY)
            await session.deaf_no_more()
        for name, ends in [("undone", "ROLLBACK"), ("done", "COMMIT")]:
            await witness.execute("BEGIN")
            for channel, payload in one.written(Hint(Topic.READY, (name,))):
                await witness.execute("SELECT pg_notify($1, $2)", channel, payload)
            await witness.execute(ends)
        await until(lambda: one.names(Topic.READY) == two.names(Topic.READY) == ["done"])


# Who wants what


async def test_some_topics_are_always_wanted(url: str) -> None:
    async with Session(url) as session:
        session.hear(Topic.READY)
        await session.deaf_no_more()
        assert {topic for topic in Topic if session.wanted(topic)} >= {Topic.READY, Topic.CANCEL, Topic.SETTINGS}


async def test_ends_are_told_while_somebody_elsewhere_waits_for_them(url: str) -> None:
    async with Session(url, beat=1.0) as worker, Session(url, beat=1.0) as client:
        worker.hear(Topic.READY)
        await worker.deaf_no_more()
        assert not worker.wanted(Topic.ENDED)
        leave = client.hear(Topic.ENDED)
        await until(lambda: worker.wanted(Topic.ENDED))
        assert not worker.wanted(Topic.PROGRESS)
        worker.send(Hint(Topic.ENDED, ("job",)))
        worker.send(Hint(Topic.PROGRESS, ("job",)))
        await until(lambda: client.names(Topic.ENDED) == ["job"])
        beats = client.probes
        await until(lambda: client.probes > beats + 6)
        assert worker.wanted(Topic.ENDED)
        leave()
        await until(lambda: not worker.wanted(Topic.ENDED))
        assert worker.sent_to(worker.channels.of(Topic.PROGRESS)) == []


async def test_who_waits_already_is_known_to_a_worker_that_comes_later(url: str) -> None:
    async with Session(url) as client, Session(url) as worker:
        client.hear(Topic.ENDED, Topic.PROGRESS)
        await client.deaf_no_more()
        worker.hear(Topic.READY)
        await until(lambda: worker._listener is not None and worker._listener.wants(Topic.ENDED))
        assert worker.wanted(Topic.PROGRESS)


async def test_a_listener_here_is_reason_enough(url: str) -> None:
    async with Session(url) as session:
        session.hear(Topic.ENDED)
        await session.deaf_no_more()
        assert session.wanted(Topic.ENDED)
        assert not session.wanted(Topic.PROGRESS)


async def test_who_cannot_know_who_waits_tells(url: str) -> None:
    async with Session(url) as one, Session(url) as client:
        client.hear(Topic.ENDED)
        await client.deaf_no_more()
        assert one.wanted(Topic.ENDED)
        one.send(Hint(Topic.ENDED, ("job",)))
        await until(lambda: client.names(Topic.ENDED) == ["job"])


async def test_a_call_may_name_a_topic_of_a_later_version(url: str) -> None:
    async with Session(url) as worker:
        worker.hear(Topic.READY)
        await worker.deaf_no_more()
        strange = msgspec.json.encode(("somebody", ["ended", "of a later version"], 60.0, False)).decode()
        await worker.pool.fetch(TELL, [worker.channels.calls], [strange])
        await until(lambda: worker._listener is not None and worker._listener.wants("of a later version"))
        assert worker.wanted(Topic.ENDED)


async def test_hints_of_changes_are_sent_as_they_come_and_bounded_while_the_server_is_away(url: str) -> None:
    async with Session(url) as one, Session(url) as two:
        two.hear(Topic.CHANGED)
        await two.deaf_no_more()
        one.hear(Topic.READY)
        await one.deaf_no_more()
        await until(lambda: one.wanted(Topic.CHANGED))
        for number in range(50):  # before the voice gets its turn
            one._send(asyncio.get_running_loop(), Hint(Topic.CHANGED, (f"job {number}",), 2))
        assert len(one._changes) == 10
        await until(lambda: len(two.names(Topic.CHANGED)) == 10)
        assert sum(hint.dropped for hint in two.heard) + 10 == 50 * 3


async def test_a_session_that_can_never_listen_speaks_of_what_is_always_wanted(url: str) -> None:
    async with Session(url, listens=False) as deaf, Session(url) as client:
        client.hear(*ALL)
        await client.deaf_no_more()
        deaf.hear(Topic.READY)
        assert not deaf.wanted(Topic.ENDED)
        for topic in (Topic.ENDED, Topic.PROGRESS, Topic.CANCEL, Topic.READY):
            deaf.send(Hint(topic, ("name",)))
        await until(lambda: {hint.topic for hint in client.heard if hint.names} == {Topic.CANCEL, Topic.READY})
        assert deaf.names(Topic.READY) == ["name"]
        deaf.hear(Topic.ENDED)
        assert deaf.wanted(Topic.ENDED)


# The listening connection


async def test_there_is_a_listening_connection_only_while_somebody_listens(
    url: str, witness: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with Session(url) as session:
        session.send(Hint(Topic.READY, ("a",)))
        await until(lambda: bool(session.sent))
        assert (session.joined, await ears(witness)) == (0, 0)
        for times in (1, 2):
            first, second = session.hear(Topic.READY), session.hear(Topic.CANCEL)
            await session.deaf_no_more()
            assert (session.joined, await ears(witness)) == (times, 1)
            first()
            second()

            async def gone() -> bool:
                return await ears(witness) == 0

            await until(gone)


async def test_channels_come_and_go_with_the_listeners_on_the_same_connection(url: str) -> None:
    async with Session(url) as session:
        always = {session.channels.calls, session.channels.private(session._own)}
        leave = session.hear(Topic.CANCEL)
        await session.deaf_no_more()
        assert await session.tuned() == {*always, session.channels.of(Topic.CANCEL)}
        leave()
        session.hear(Topic.READY)
        await until(lambda: Hint(Topic.READY) in session.heard)
        assert await session.tuned() == {*always, session.channels.of(Topic.READY)}
        assert session.joined == 1


async def heard_again(one: Session, two: Session) -> None:
    """Wait until a hint of one reaches the other."""
    one.sent.clear()
    two.heard.clear()

    def told() -> bool:
        one.send(Hint(Topic.READY, ("again",)))
        return "again" in two.names(Topic.READY)

    await until(told)


async def test_a_connection_that_is_cut_is_replaced_and_everybody_told_to_look(
    url: str, witness: asyncpg.Connection[asyncpg.Record], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.postgres")
    async with Session(url) as one, Session(url) as two:
        two.hear(*ALL)
        await two.deaf_no_more()
        two.heard.clear()
        await witness.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", LISTENERS
        )
        await until(lambda: len(two.heard) == 3)
        assert set(two.heard) == {Hint(Topic.READY), Hint(Topic.SETTINGS), Hint(Topic.CHANGED)}
        await heard_again(one, two)
        assert two.joined == 2
        await until(lambda: len(caplog.records) == 2)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_connection_that_died_silently_is_noticed_within_two_beats(url: str) -> None:
    async with Proxy(url) as proxy, Session(url) as one, Session(url, beat=BEAT, listen_url=proxy.url) as two:
        two.hear(*ALL)
        await two.deaf_no_more()
        two.heard.clear()
        proxy.silence()
        joined, probes = two.joined, two.probes
        await until(lambda: two.joined > joined)
        assert two.probes <= probes + 4, "with somebody waiting, there are two probes a beat"
        await until(lambda: {Hint(Topic.READY), Hint(Topic.SETTINGS)} <= set(two.heard))
        await heard_again(one, two)


async def test_a_listening_connection_that_works_is_kept(url: str) -> None:
    async with Session(url, beat=0.5) as session:
        session.hear(Topic.READY)

        async def kept() -> bool:
            joined, probes = session.joined, session.probes
            await until(lambda: session.probes > probes + 3)
            return joined == session.joined

        await until(kept)


async def test_a_server_that_goes_and_comes_back_is_found_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server.start(tmp_path)
    try:
        async with Session(server.dsn) as one, Session(server.dsn) as two:
            two.hear(Topic.READY)
            await two.deaf_no_more()
            server.kill()
            await until(lambda: two._listener is not None and not two._listener.hears)
            one.send(Hint(Topic.READY, ("lost",)))
            await asyncio.sleep(BEAT)
            server.restart()
            await heard_again(one, two)
        assert [record.levelname for record in caplog.records if record.levelno >= logging.WARNING] == ["WARNING"]
    finally:
        server.stop()


async def test_a_frozen_server_is_heard_again_once_thawed(tmp_path: Path) -> None:
    server = Server.start(tmp_path)
    try:
        async with Session(server.dsn) as one, Session(server.dsn, beat=BEAT) as two:
            two.hear(Topic.READY)
            await two.deaf_no_more()
            server.freeze()
            await asyncio.sleep(BEAT * 3)
            server.thaw()
            await heard_again(one, two)
    finally:
        server.stop()


async def test_a_listening_connection_that_hears_nothing_is_reported_once(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a pooler, where the server hears LISTEN from somebody else."""
    async with Session(url, beat=BEAT, listen_url=shared().url(shared().create_database())) as session:
        session.hear(Topic.READY)
        await until(lambda: session.joined >= 3)
    [record] = caplog.records
    assert "nothing is heard" in record.getMessage()


# Open and close


async def test_nothing_is_left_after_close(url: str, witness: asyncpg.Connection[asyncpg.Record]) -> None:
    before = asyncio.all_tasks()
    session = Session(url)
    async with session:
        session.hear(*ALL)
        await session.deaf_no_more()
        session.send(Hint(Topic.READY, ("a",)))
    assert asyncio.all_tasks() == before

    async def gone() -> bool:
        return await ears(witness) == 0

    await until(gone)
    await session.close()


async def test_what_waits_to_be_told_is_told_at_close(url: str) -> None:
    async with Session(url) as two:
        two.hear(Topic.READY)
        await two.deaf_no_more()
        async with Session(url) as one:
            one._throttle = Throttle(gap=600)
            one.send(Hint(Topic.READY, ("a",)))
            await until(lambda: bool(one.sent))
            one.send(Hint(Topic.READY, ("a",)))
            one.send(Hint(Topic.READY, ("b",)))
        await until(lambda: sorted(two.names(Topic.READY)) == ["a", "a", "b"])


async def test_a_session_can_be_opened_again(url: str) -> None:
    one = Session(url)
    one.hear(Topic.READY)
    for _ in range(2):
        one.heard.clear()
        async with Session(url) as other, one:
            await one.deaf_no_more()
            other.send(Hint(Topic.READY, ("a",)))
            await until(lambda: one.names(Topic.READY) == ["a"])


async def test_a_session_without_a_server_opens_and_closes() -> None:
    before = asyncio.all_tasks()
    async with Session("postgresql://nobody@127.0.0.1:1/nowhere") as session:
        session.hear(*ALL)
        session.send(Hint(Topic.READY, ("a",)))
        await asyncio.sleep(BEAT)
    assert asyncio.all_tasks() == before


async def test_a_session_that_is_not_open_says_nothing(url: str) -> None:
    session = Session(url)
    session.hear(Topic.READY)
    session.send(Hint(Topic.READY, ("a",)))
    async with session:
        pass
    session.send(Hint(Topic.READY, ("b",)))
    await asyncio.sleep(0)
    assert session.names(Topic.READY) == []
