"""The head of an answer travels with its body, and nothing is held back that nothing follows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from headrace.http.problems import Problem
from headrace.hub.server.connections import _Joined
from headrace.hub.server.dispatch import read_body


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0


async def test_what_follows_at_once_goes_along() -> None:
    wire = Wire()
    joined = _Joined(wire, asyncio.get_running_loop())
    joined.write(b"head ")
    assert (wire.writes, joined.get_write_buffer_size()) == ([], 5)
    joined.write(b"body")
    joined.write(b"")
    await asyncio.sleep(0)
    assert wire.writes == [b"head body"]


async def test_what_nothing_follows_is_sent_in_the_same_round() -> None:
    wire = Wire()
    joined = _Joined(wire, asyncio.get_running_loop())
    joined.write(b"event 1")
    await asyncio.sleep(0)
    assert wire.writes == [b"event 1"]
    joined.write(b"event 2")
    joined.close()
    assert wire.writes == [b"event 1", b"event 2"]
    assert wire.closed
    await asyncio.sleep(0)
    assert len(wire.writes) == 2


async def test_a_connection_that_was_lost_is_not_written_to() -> None:
    wire = Wire()
    joined = _Joined(wire, asyncio.get_running_loop())
    joined.write(b"event")
    wire.closed = True
    await asyncio.sleep(0)
    assert wire.writes == []


def request(*parts: bytes, late: float = 0.0) -> Request:
    """A request whose body comes in these parts, each of them so late."""
    left = list(parts)

    async def receive() -> dict[str, Any]:
        if late:
            await asyncio.sleep(late)
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive)


async def test_a_body_that_is_there_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: float) -> None:
        raise AssertionError("a timer was set")

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "timeout", refused)
        assert await read_body(request(b"{}"), 100, 5.0) == b"{}"


@pytest.mark.parametrize("late", [0.0, 0.01])
async def test_a_body_in_parts_is_put_together(late: float) -> None:
    assert await read_body(request(b'{"a"', b":1", b"}", late=late), 100, 30.0) == b'{"a":1}'
    with pytest.raises(Problem, match="may have 10 bytes"):
        await read_body(request(b"12345", b"67890", b"1", late=late), 10, 30.0)


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    with pytest.raises(Problem, match="must come within"):
        await read_body(request(b"{}", late=60.0), 100, 0.05)
    with pytest.raises(Problem, match="must come within"):
        await read_body(request(*[b"1"] * 100, late=0.02), 1000, 0.1)


async def test_who_gives_up_waiting_for_a_body_leaves_nothing_behind() -> None:
    task = asyncio.create_task(read_body(request(b"{}", late=60.0), 100, 60.0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
