"""The health endpoint, asked over a real socket."""

from __future__ import annotations

import asyncio
import json

import pytest

from headrace.cli.process.health import Address, Vitals, metrics, serve

WELL = Vitals(True, {"worker": "w1", "state": "running", "busy": 3, "last_beat": 0.5}, {"done": 7})
ILL = WELL._replace(healthy=False)


async def ask(vitals: Vitals, request: str) -> tuple[str, str]:
    server = await serve(Address("127.0.0.1", 0), lambda: vitals)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request.encode())
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return head.partition("\r\n")[0], body


@pytest.mark.parametrize(("vitals", "status"), [(WELL, "HTTP/1.1 200 OK"), (ILL, "HTTP/1.1 503 Service Unavailable")])
async def test_healthz_says_how_the_worker_is(vitals: Vitals, status: str) -> None:
    line, body = await ask(vitals, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert line == status
    told = json.loads(body)
    assert told == {
        "healthy": vitals.healthy,
        "worker": "w1",
        "state": "running",
        "busy": 3,
        "last_beat": 0.5,
        "done": 7,
    }


async def test_metrics_are_in_prometheus_text() -> None:
    line, body = await ask(WELL, "GET /metrics?x=1 HTTP/1.1\r\n\r\n")
    assert line.endswith("200 OK")
    assert body == metrics(WELL)
    assert "headrace_worker_busy 3\n" in body
    assert "# TYPE headrace_worker_done_total counter\nheadrace_worker_done_total 7\n" in body
    assert 'headrace_worker_healthy{worker="w1",state="running"} 1\n' in body


@pytest.mark.parametrize(
    ("request_line", "status"),
    [("GET / HTTP/1.1", "404 Not Found"), ("POST /healthz HTTP/1.1", "405 Method Not Allowed")],
)
async def test_other_requests_are_refused(request_line: str, status: str) -> None:
    line, _ = await ask(WELL, f"{request_line}\r\n\r\n")
    assert line == f"HTTP/1.1 {status}"


async def test_head_has_no_body() -> None:
    line, body = await ask(WELL, "HEAD /healthz HTTP/1.1\r\n\r\n")
    assert line.endswith("200 OK")
    assert body == ""


async def test_what_is_not_http_gets_no_answer() -> None:
    assert await ask(WELL, "hello\r\n\r\n") == ("", "")
