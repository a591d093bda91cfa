"""A headrace worker with the standard library alone, for jobs {"task": "fetch", "payload": {"urls": […]}}."""

import json
import os
import signal
import threading
import time
from urllib.request import Request, urlopen

HUB, KEY = os.environ.get("HEADRACE_HUB", "http://127.0.0.1:8470"), os.environ.get("HEADRACE_KEY")
HEADERS = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {KEY}"} if KEY else {})


def say(what, **fields):  # until the hub answers: every message may be repeated
    while True:
        try:
            return json.load(urlopen(Request(f"{HUB}/api/work/{what}", json.dumps(fields).encode(), HEADERS)))
        except OSError as error:
            if (code := getattr(error, "code", 503)) == 409:  # the job is no longer ours
                return {"cancel": True}
            if code not in (429, 500, 502, 503, 504):
                raise SystemExit(error.read().decode()) from None
            print(f"{what}: {error}; once more in a second")
            time.sleep(1)


def run(lease, urls):
    sizes = {}
    try:
        say("accept_job", lease=lease)
        for n, url in enumerate(urls):
            job["at"] = {"what": "update_job_progress", "lease": lease, "progress": 100 * n / len(urls), "message": url}
            if say(**job["at"])["cancel"]:
                return say("release_job", lease=lease)  # which ends one that was cancelled
            sizes[url] = len(urlopen(url).read())
        return say("complete_job", lease=lease, result=sizes)
    except Exception as e:  # a server that does not answer, or is broken, may be well again later
        retry = isinstance(e, OSError) and getattr(e, "code", 500) >= 500
        return say("fail_job", lease=lease, error=str(e), retry=retry, error_details={"error_type": type(e).__name__})


def beat():  # what it does now is said again, so that a page may take long
    while not time.sleep(me["heartbeat_seconds"]):
        say(**job.get("at", {"what": "heartbeat", "token": me["token"]}))


signal.signal(signal.SIGTERM, signal.default_int_handler)
job, me = {}, say("register_worker", worker_id=f"fetch-{os.getpid()}", tasks=["fetch"], capabilities={"region": "eu"})
threading.Thread(target=beat, daemon=True).start()
try:
    while True:
        job = say("claim_job", worker_id=me["worker_id"], token=me["token"], wait=30, request=str(time.time()))
        if job["type"] == "job_assigned":
            run(job["lease"], job["payload"].get("urls", []))
            job = {}
        time.sleep(job.get("retry_after", 0))
except KeyboardInterrupt:
    if "lease" in job:
        say("release_job", lease=job["lease"])
