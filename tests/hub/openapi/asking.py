"""A hub asked by schemathesis for all that its OpenAPI document promises."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.hub.operations import OPERATIONS
from tests.hub.openapi.hooks import OWN
from tests.hub.process import Running, started
from tests.support.forks import run

__all__ = ["STREAMS", "Verdict", "asked"]

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

PAGES_WORDS = frozenset(
    [
        "type",
        "customer_id",
        "requirements",
        "max_retries",
        "retry_delays",
        "retry_conditions",
        "no_retry_conditions",
        "webhook_url",
        "events",
        "authentication",
    ]
)
"""A body with all fields says everything twice, and differently: such are refused, and nothing behind that is reached.
So the single submit is asked in one way to say it, and the bulk in both."""

STREAMS = {"job_events", "batch_events", "feed"}
"""All that is not asked for. What may wait answers at once if it is not told to."""


@dataclass(frozen=True)
class Verdict:
    """What came of a run."""

    code: int
    said: str
    log: str = ""
    """What the hub said on stderr."""

    @property
    def cases(self) -> int:
        """Requests that were made and looked at."""
        return _sum(r"(\d+) generated", self.said)

    @property
    def scenarios(self) -> int:
        """Stories of several requests, each made of the answers before it."""
        return _sum(r"Scenarios:\s+(\d+)", self.said)

    @property
    def links(self) -> int:
        """Steps from one answer to the next request, of different kinds in each round."""
        return _sum(r"API Links:\s+(\d+) covered", self.said)

    @property
    def phases(self) -> set[str]:
        """Those that found nothing."""
        return set(re.findall(r"✅ +(\w+) \(in", self.said))


def _sum(pattern: str, said: str) -> int:
    return sum(map(int, re.findall(pattern, said)))


def asked(folder: Path, url: str, *, examples: int, seed: int, covered: Collection[str]) -> Verdict:
    """Start a hub on this store, with a key, and have schemathesis ask it.

    ``covered``: the operations of which every bound of every field is tried, which takes longer than all else.
    """
    made = _run("keys", "create", OWN, "--scope", "read,submit,work,act,admin", "--url", url, "--json")
    key = json.loads(made)["text"]
    for word in ("resize", "deliver"):  # so that lists have something in them, whatever else succeeds
        _run("submit", word, "--url", url)
    with started(folder, "hub", "--url", url, "--submit-rate", "0", "--no-access-log") as hub:
        document = folder / "openapi.json"
        document.write_text(json.dumps(fuzzed(hub.get("/openapi.json"))))
        verdict = _schemathesis(hub, document, key, examples, seed, "--phases", "examples,fuzzing,stateful")
        if verdict.code == 0:
            chosen = [word for name in covered for word in ("--include-operation-id", name)]
            more = _schemathesis(hub, document, key, examples, seed, "--phases", "coverage", *chosen)
            verdict = Verdict(more.code, verdict.said + more.said)
        # A scenario that cannot be repeated to the letter, since ids are new each time, ends the stateful phase early,
        # and says nothing. So it is begun again, with another seed, until there were as many as asked for.
        while verdict.code == 0 and (verdict.scenarios < examples or not verdict.links):
            seed += 1
            more = _schemathesis(hub, document, key, examples, seed, "--phases", "examples,stateful")
            assert more.scenarios, more.said
            verdict = Verdict(more.code, verdict.said + more.said)
        hub.until_ready()
        assert hub.end() == 0
        return replace(verdict, log=hub.log)


def fuzzed(document: dict[str, Any]) -> dict[str, Any]:
    """The document without what goes on until somebody leaves: streams, and waiting."""
    schemas, left = document["components"]["schemas"], set[str]()
    for methods in document["paths"].values():
        for method, operation in list(methods.items()):
            if "text/event-stream" in operation["responses"].get("200", {}).get("content", {}):
                del methods[method]
                continue
            left.add(operation["operationId"])
            given = operation.get("parameters", [])
            operation["parameters"] = [one for one in given if one["name"] != "wait"]
    assert {one.name for one in OPERATIONS} - left == STREAMS
    del schemas["ClaimJob"]["properties"]["wait"]
    one = copy.deepcopy(schemas["SubmitBody"]) | {"required": ["task"], "title": "OneSubmit"}
    del one["allOf"]
    one["properties"] = {name: kind for name, kind in one["properties"].items() if name not in PAGES_WORDS}
    schemas["OneSubmit"] = one
    body = document["paths"]["/api/jobs"]["post"]["requestBody"]["content"]["application/json"]
    body["schema"] = {"$ref": "#/components/schemas/OneSubmit"}
    return document


def _schemathesis(hub: Running, document: Path, key: str, examples: int, seed: int, *options: str) -> Verdict:
    command = [
        *(str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(HERE / "schemathesis.toml")),
        *("run", str(document), "--url", hub.address, "--header", f"Authorization: Bearer {key}"),
        *("--max-examples", str(examples), "--seed", str(seed), "--generation-database", "none"),
        *("--continue-on-failure", "--no-color", "--warnings", "off", *options),
    ]
    more = {"SCHEMATHESIS_HOOKS": "tests.hub.openapi.hooks", "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    more |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run(
        command, cwd=document.parent, env={**os.environ, **more}, check=False, capture_output=True, encoding="utf-8"
    )
    return Verdict(done.returncode, done.stdout + done.stderr)


def _run(*words: str) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    return run(*words, env=clean, check=True).stdout
