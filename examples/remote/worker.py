"""A headrace worker in Python, with the standard library only: it fetches the pages that a job names.

    HEADRACE_HUB=https://hub.example HEADRACE_KEY=hr_… python3 worker.py

A job for it: {"task": "fetch", "payload": {"urls": ["https://example.com/"]}}
"""

import json, os, signal, sys, threading, time  # noqa: E401
from urllib.error import HTTPError
from urllib.request import Request, urlopen

HUB, KEY = os.environ.get("HEADRACE_HUB", "http://127.0.0.1:8470"), os.environ.get("HEADRACE_KEY")
HEAD = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {KEY}"} if KEY else {})


def say(message, **fields):  # any message may be repeated, so this one is, until the hub answers
    while True:
        try:
            with urlopen(Request(f"{HUB}/api/work/{message}", json.dumps(fields).encode(), HEAD), timeout=60) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code < 500 and error.code != 429:
                sys.exit(f"{message} was refused: {error.read().decode()}")
        except OSError as error:
            print(f"{message}: {error}", file=sys.stderr)
        time.sleep(1)


def fetch(payload, report):
    sizes = {}
    for done, url in enumerate(payload["urls"]):
        report(100 * done / len(payload["urls"]), f"fetching {url}")
        with urlopen(url, timeout=60) as page:
            sizes[url] = len(page.read())
    return sizes


class Gone(Exception):
    """The job was cancelled, or was given to somebody else."""


def run(me, job):
    mine, over = {**me, "job_id": job["job_id"], "lease": job["lease"]}, threading.Event()

    def report(percent, message):
        answer = say("update_job_progress", **mine, progress=percent, message=message)
        if answer["type"] == "stale_job" or answer["cancel"]:
            raise Gone

    def beat():  # while a page takes long
        while not over.wait(10):
            say("heartbeat", **me, held=[job["job_id"]])

    threading.Thread(target=beat, daemon=True).start()
    try:
        say("accept_job", **mine)
        say("complete_job", **mine, result=fetch(job["payload"], report))
    except (Gone, SystemExit) as why:
        say("release_job", **mine)  # a cancelled one ends by it
        if isinstance(why, SystemExit): raise
    ...
