"""Two customers flood a hub with names of tasks for a minute: the operator keeps its rate, and nobody else is refused.

A machine is not the same from minute to minute, so quiet and flooded turns alternate, and their sums are compared.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import httpx2
import pytest

from headrace import App
from headrace.core.defaults import MAX_CUSTOMER_PROFILES
from tests.hub.process import started
from tests.support.servers import schemas

TURNS, SECONDS = 6, 10.0
"""A minute in all, and as much without a flood."""
SHARE = 0.8
SUBMITTERS, KEYS = 8, 80
"""Each of so many programs of the operator has its share of so many keys: none is faster than its keys may be."""

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


@contextmanager
def flooders(address: str, keys: list[str], file: Path) -> Iterator[list[dict[str, int]]]:
    """Customers that flood the hub while the file is there; what each was told, at the end."""
    told = list[dict[str, int]]()
    with ExitStack() as stack:
        words = [[sys.executable, "-m", "tests.soak.flooder", address, key, str(file)] for key in keys]
        members = [stack.enter_context(subprocess.Popen(one, stdout=subprocess.PIPE, text=True)) for one in words]
        try:
            yield told
        finally:
            for member in members:
                member.kill()
            told += [json.loads(member.communicate()[0].splitlines()[-1]) for member in members]


async def submits(address: str, keys: list[str], prefix: str) -> int:
    """How many jobs the operator submits in one turn, every tenth of a task that nobody had; none is refused."""
    end = asyncio.get_running_loop().time() + SECONDS

    async def one(client: httpx2.AsyncClient, keys: list[str], number: int) -> int:
        for done in count():
            if asyncio.get_running_loop().time() >= end:
                return done
            task = f"{prefix}-{number}-{done}" if done % 10 == 0 else "usual"
            headers = {"authorization": f"Bearer {keys[done % len(keys)]}"}
            answer = await client.post("/api/jobs", json={"task": task, "payload": {}}, headers=headers)
            assert answer.status_code == 201, answer.text
        raise AssertionError

    async with httpx2.AsyncClient(base_url=address, timeout=60, trust_env=False) as client:
        shares = [keys[number::SUBMITTERS] for number in range(min(SUBMITTERS, len(keys)))]
        return sum(await asyncio.gather(*(one(client, share, number) for number, share in enumerate(shares))))


async def patiently(address: str, key: str) -> int:
    """What another customer is answered, who submits a few jobs in one turn."""
    async with httpx2.AsyncClient(base_url=address, timeout=60, trust_env=False) as client:
        for number in range(20):
            await asyncio.sleep(SECONDS / 25)
            body, headers = {"task": f"good-{number}", "payload": {}}, {"authorization": f"Bearer {key}"}
            answer = await client.post("/api/jobs", json=body, headers=headers)
            if answer.status_code != 201:
                return answer.status_code
    return 201


async def test_the_operator_keeps_its_rate(url: str, tmp_path: Path) -> None:
    async with App(url) as app:
        keys = [(await app.keys.create(f"operator {n}", ["submit"])).text for n in range(KEYS)]
        floods = [(await app.keys.create(f"flood {n}", ["submit"], customer=f"flood {n}")).text for n in range(2)]
        good = (await app.keys.create("good", ["submit"], customer="good")).text
        with started(tmp_path, "hub", "--url", url, "--no-access-log") as hub:
            quiet, flooded, file = 0, 0, tmp_path / "flood"
            await submits(hub.address, keys[:SUBMITTERS], "warm")
            with flooders(hub.address, floods, file) as told:
                for turn in range(TURNS):
                    quiet += await submits(hub.address, keys, f"quiet-{turn}")
                    file.touch()
                    mine, theirs = await asyncio.gather(
                        submits(hub.address, keys, f"flooded-{turn}"), patiently(hub.address, good)
                    )
                    file.unlink()
                    flooded += mine
                    assert theirs == 201, "another customer is not refused"
        share = flooded / quiet
        print(f"{url.partition(':')[0]}: {quiet} submits without a flood, {flooded} with one: {share:.2f}; {told}")
        for one in ("flood 0", "flood 1"):
            assert await app.jobs.count(customer=one, status="queued") == MAX_CUSTOMER_PROFILES
        assert share >= SHARE
