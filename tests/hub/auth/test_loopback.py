"""A hub without keys: programs of this machine may ask, and no web page."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from headrace import App
from headrace.errors import ConfigError
from headrace.http.problems import Problem
from headrace.hub import Hub, HubOptions
from headrace.hub.auth.loopback import is_loopback, refuse_strangers, unsafe
from tests.hub.serving import Served, serving
from tests.support.until import until


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "::1", "[::1]"])
def test_names_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.nip.io", "2130706433"]
)
def test_names_that_may_lead_elsewhere(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (HubOptions(host="0.0.0.0"), "0.0.0.0 can be reached from elsewhere"),
        (HubOptions(host="::"), "can be reached from elsewhere"),
        (HubOptions(host="hub.example"), "can be reached from elsewhere"),
        (HubOptions(proxy_headers=True), "behind a proxy everybody would look like this machine"),
    ],
)
async def test_without_keys_it_stays_on_this_machine(options: HubOptions, said: str) -> None:
    assert said in (unsafe(options) or "")
    app = App("memory://")
    with pytest.raises(ConfigError, match="headrace keys create"):
        async with app, Hub(app, options).authenticator.open():
            raise AssertionError("the door must not open")
    async with app:
        await app.keys.create("shop", ["read"])
        async with Hub(app, options).authenticator.open():
            pass


JSON = {"content-type": "application/json"}


async def ask(hub: Served, method: str = "GET", path: str = "/api/keys", **headers: str) -> httpx2.Response:
    """As somebody who sends these headers, and no others that matter."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx2.AsyncClient(base_url=hub.address, trust_env=False) as client:
        body = b'{"name": "x", "scopes": ["read"]}' if method == "POST" else None
        return await client.request(method, path, content=body, headers=given)


async def test_the_host_must_be_this_machine(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        port = hub.address.rpartition(":")[2]
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "[::1]", "localhost"):
            assert (await ask(hub, host=host)).status_code == 200
        for host in (f"rebound.example:{port}", "10.0.0.1", "localhost@evil.example", "localhost.evil.example", "[::1"):
            answer = await ask(hub, host=host)
            assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (403, "stranger")
            assert "Host" in answer.json()["detail"]


async def test_no_page_of_another_origin_may_ask(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        port = int(hub.address.rpartition(":")[2])
        for origin in (
            "https://evil.example",
            "null",
            f"http://localhost:{port}",
            f"http://127.0.0.1:{port + 1}",
            "http://[",
        ):
            for method in ("GET", "POST"):
                answer = await ask(hub, method, origin=origin, content_type="application/json")
                assert answer.status_code == 403, origin
                assert "access-control-allow-origin" not in answer.headers
        assert (await ask(hub, origin=hub.address)).status_code == 200
        for site in ("cross-site", "same-site"):
            assert (await ask(hub, sec_fetch_site=site)).status_code == 403
            visit = {"sec_fetch_site": site, "sec_fetch_mode": "navigate"}
            assert (await ask(hub, **visit, sec_fetch_dest="document")).status_code == 200
            assert (await ask(hub, **visit, sec_fetch_dest="iframe")).status_code == 403
        assert (await ask(hub, sec_fetch_site="same-origin")).status_code == 200
        preflight = {"access-control-request-method": "POST", "origin": "https://evil.example"}
        answer = await hub.client.options("/api/keys", headers=preflight)
        assert answer.status_code >= 400
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert await hub.app.keys.list() == []


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
async def test_what_changes_something_must_be_json(tmp_path: Path, kind: str) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        given = {"content_type": kind} if kind else {"sec_fetch_site": "none"}
        for method, path in (("POST", "/api/keys"), ("DELETE", "/api/keys/shop")):
            answer = await ask(hub, method, path, **given)
            assert answer.status_code == 415
            assert "Content-Type: application/json" in answer.json()["detail"]
        assert await hub.app.keys.list() == []


async def test_a_program_without_a_body_need_not_say_what_it_is() -> None:
    def status(*headers: tuple[bytes, bytes]) -> int:
        scope = {"type": "http", "method": "POST", "scheme": "http", "client": ("127.0.0.1", 1)}
        try:
            refuse_strangers({**scope, "headers": [(b"host", b"localhost"), *headers]})
        except Problem as problem:
            return problem.status
        return 200

    assert status() == status((b"content-length", b"0")) == 200
    for header in (
        (b"content-length", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"content-type", b"text/plain"),
        (b"origin", b"http://localhost"),
        (b"sec-fetch-site", b"same-origin"),
    ):
        assert status(header) == 415, header
    assert status((b"origin", b"https://evil.example")) == 403


async def test_without_keys_a_request_without_a_body_needs_no_content_type(tmp_path: Path) -> None:
    async with (
        serving(f"sqlite:///{tmp_path}/jobs.db") as hub,
        httpx2.AsyncClient(base_url=hub.address, trust_env=False) as client,
    ):
        paused = await client.post("/api/queues/mail/pause")
        assert "content-type" not in paused.request.headers
        assert (paused.status_code, paused.json()["paused"]) == (200, True), paused.text
        for headers in ({"origin": hub.address}, {"sec-fetch-site": "same-origin"}, {"content-type": "text/plain"}):
            assert (await client.post("/api/queues/mail/resume", headers=headers)).status_code == 415
        assert (await client.get("/api/queues")).json()["items"][0]["paused"]


async def test_a_proxy_in_front_of_it_is_noticed(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        for name in ("forwarded", "x_forwarded_for", "x_real_ip", "via"):
            answer = await ask(hub, **{name: "127.0.0.1"})
            assert answer.status_code == 403
            assert "proxy" in answer.json()["detail"]


def test_who_is_elsewhere_is_refused_whatever_it_says() -> None:
    headers = [(b"host", b"localhost")]
    for client in (("10.0.0.7", 1), None):
        with pytest.raises(Problem) as raised:
            refuse_strangers({"type": "http", "method": "GET", "client": client, "headers": headers})
        assert raised.value.status == 403
    refuse_strangers({"type": "http", "method": "GET", "client": ("127.0.0.1", 1), "headers": headers})


def test_a_socket_of_a_foreign_page_is_refused() -> None:
    def socket(*headers: tuple[bytes, bytes]) -> None:
        given = [(b"host", b"localhost:8470"), *headers]
        refuse_strangers({"type": "websocket", "scheme": "ws", "client": ("127.0.0.1", 1), "headers": given})

    socket()
    socket((b"origin", b"http://localhost:8470"))
    for origin in (b"https://evil.example", b"http://localhost:8471", b"null"):
        with pytest.raises(Problem):
            socket((b"origin", origin))


async def test_the_first_key_shuts_the_door_and_the_last_one_does_not_open_it(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        closed = list[str | None]()
        undo = hub.hub.authenticator.on_revoked(closed.append)
        made = await hub.client.post("/api/keys", json={"name": "shop", "scopes": ["read"]})
        assert (made.status_code, made.json()["key"]["created_by"]) == (201, "local")

        async def shut() -> bool:
            return (await hub.client.get("/api/version")).status_code == 401

        await until(shut)
        assert closed == [None]
        bearer = {"authorization": f"Bearer {made.json()['text']}"}
        assert (await hub.client.get("/api/version", headers=bearer)).status_code == 200
        await hub.app.keys.revoke("shop")
        await until(lambda: closed == [None, made.json()["key"]["prefix"]])
        assert (await hub.client.get("/api/version")).status_code == 401
        undo()
