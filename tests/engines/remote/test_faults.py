"""A network between worker and hub that is cut or falls silent: what was lost is asked again, nothing is done twice."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace import App, Status
from headrace.engine import Hint, Topic
from tests.engines.remote.near import opened
from tests.hub.serving import serving
from tests.support.servers.proxy import Proxy
from tests.support.until import until


@pytest.mark.timeout(180)
async def test_connections_are_cut_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut anywhere: before a call, in it, and between what was written and the answer. One is silent for good."""
    monkeypatch.setattr("headrace.engines.remote.calls.TIMEOUT_SECONDS", 3.0)
    jobs, ran = 150, list[int]()
    near, remote = App(f"sqlite:///{tmp_path}/jobs.db"), App()

    @remote.task
    async def note(n: int) -> int:
        await asyncio.sleep(0.01)
        ran.append(n)
        return n

    async with serving(near) as hub, Proxy(hub.address) as proxy:
        with remote.override(url=f"hub+{proxy.url}"):
            async with remote, remote.worker(concurrency=5):

                async def disturb() -> None:
                    for turn in range(25):
                        before = proxy.asked
                        await until(lambda: proxy.asked > before + 2)  # noqa: B023 - it is waited for here
                        if turn == 12:
                            proxy.silence()
                        else:
                            proxy.cut()

                disturbing = asyncio.create_task(disturb())
                handles = await asyncio.gather(*(note.submit(n) for n in range(jobs)))
                results = await asyncio.gather(*(handle.result(timeout=120) for handle in handles))
                disturbing.cancel()
        assert results == list(range(jobs))
        assert sorted(ran) == results, "none ran twice"
        assert await near.jobs.count(status=Status.COMPLETED) == jobs == await near.jobs.count()
        for handle in handles:
            [attempt] = (await near.jobs.history(handle.id)).attempts
            assert attempt.outcome == "completed"
        assert (await near.store.verify()).ok


async def test_hints_come_back_after_a_cut(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(serving("memory://"))
        proxy = await stack.enter_async_context(Proxy(hub.address))
        engine = await stack.enter_async_context(opened(int(proxy.url.rpartition(":")[2])))
        heard = list[Hint]()
        engine.bus.listen(frozenset({Topic.ENDED}), heard.append)
        await until(lambda: hub.app.session.engine.bus.wanted(Topic.ENDED))
        for _ in range(3):
            heard.clear()
            proxy.cut()
            await until(lambda: Hint(Topic.ENDED) in heard, what="it is told that it may have missed some")
            hub.app.session.engine.bus.send(Hint(Topic.ENDED, ("x",)))
            await until(lambda: Hint(Topic.ENDED, ("x",)) in heard)
            for n in range(50):  # some of them while the connection is being lost
                engine.bus.send(Hint(Topic.READY, (str(n),)))
    gc.collect()
    assert not [one for one in caplog.records if one.levelname == "ERROR"], "no task died unheard"
