"""``python roaming_worker.py http|ws NAME HUB…``: a worker behind hubs that goes to the next one when one is gone.

What it has said and got no answer to it says again, at whichever hub, as the protocol has it.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

TASKS = ["far"]
PATIENCE = 15.0
"""Seconds for an answer: a hub that stands still is left for another."""


class Lost(Exception):
    """No answer came, or one that says to ask again."""


def _refused(problem: dict[str, Any]) -> dict[str, Any]:
    if problem["status"] in (429, 500, 502, 503, 504):
        raise Lost(problem["detail"])
    return {"type": problem["type"].rpartition("/")[2]}


class ByHttp:
    """Every message is a request."""

    def __init__(self, hub: str) -> None:
        self._hub, self._opener = hub, build_opener(ProxyHandler({}))

    def say(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        """The answer to a message."""
        body, header = json.dumps(fields).encode(), {"Content-Type": "application/json"}
        try:
            with self._opener.open(Request(f"{self._hub}/api/work/{kind}", body, header), timeout=PATIENCE) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except HTTPError as error:
            return _refused(json.load(error))
        except (OSError, HTTPException) as error:
            raise Lost(str(error)) from error

    def close(self) -> None:
        """Nothing is open."""


class BySocket:
    """Messages of one connection."""

    def __init__(self, hub: str) -> None:
        try:
            self._socket = connect(hub.replace("http", "ws", 1) + "/ws", proxy=None, open_timeout=PATIENCE)
        except (OSError, WebSocketException) as error:
            raise Lost(str(error)) from error
        self._numbers = itertools.count(1)

    def say(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        """The answer to a message."""
        number, until = next(self._numbers), time.monotonic() + PATIENCE
        try:
            self._socket.send(json.dumps({"type": kind, "id": number, **fields}))
            while True:
                heard: dict[str, Any] = json.loads(self._socket.recv(max(0.1, until - time.monotonic())))
                if heard.get("id") == number:
                    return _refused(heard["problem"]) if heard["type"] == "error" else heard
        except (OSError, WebSocketException) as error:
            raise Lost(str(error)) from error

    def close(self) -> None:
        """Hang up."""
        self._socket.close_socket()


class Roaming:
    """One worker, at one hub after another."""

    def __init__(self, kind: str, name: str, hubs: list[str]) -> None:
        self._kind, self._name = kind, name
        self._hubs = itertools.cycle(random.sample(hubs, len(hubs)))
        self._way: ByHttp | BySocket | None = None
        self._token: str | None = None

    def say(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Say it until it is answered."""
        while True:
            try:
                if self._way is None:
                    self._way = (ByHttp if self._kind == "http" else BySocket)(next(self._hubs))
                    self._register(self._way)
                token = {"token": self._token} if kind == "claim_job" else {}
                answer = self._way.say(kind, {"worker_id": self._name, **token, **fields})
            except Lost as why:
                self._leave(f"{kind}: {why}")
                continue
            if answer["type"] not in ("token", "worker-gone"):
                return answer
            self._token = None  # it was taken for dead: it is another worker from now on
            self._leave(f"{kind}: {answer}")
            if kind != "claim_job":
                return answer

    def _register(self, way: ByHttp | BySocket) -> None:
        token = {"token": self._token} if self._token else {}
        answer = way.say("register_worker", {"worker_id": self._name, "tasks": TASKS, **token})
        if answer["type"] != "worker_registered":
            self._token = None
            raise Lost(str(answer))
        self._token = answer["token"]

    def _leave(self, why: str) -> None:
        print(why, flush=True)
        if self._way is not None:
            self._way.close()
        self._way = None
        time.sleep(random.uniform(0.05, 0.3))

    def work(self) -> None:
        """Do one job after another, until killed."""
        for number in itertools.count():
            job = self.say("claim_job", wait=2, request=f"{self._name}-{number}")
            if job["type"] != "job_assigned":
                time.sleep(min(1.0, job.get("retry_after", 0)))
                continue
            about = {"job_id": job["job_id"], "lease": job["lease"]}
            if self.say("start_job", **about)["type"] != "job_started":
                continue
            time.sleep(job["payload"]["seconds"])
            if job["payload"]["fails"] and job["attempt"] == 1:
                self.say("fail_job", **about, error="not yet", retry=True)
            else:
                self.say("complete_job", **about, result=job["payload"]["n"])


if __name__ == "__main__":
    Roaming(sys.argv[1], sys.argv[2], sys.argv[3:]).work()
