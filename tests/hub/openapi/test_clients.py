"""Public generators make clients of the document, without a warning about a schema, and the clients work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from headrace.hub.operations import OPERATIONS
from tests.docs.pages import ROOT, blocks
from tests.hub.process import Running, started
from tests.support import npm, tools

pytestmark = pytest.mark.timeout(
    240
)  # the generators and the checker of types take seconds each, more where it is busy

ADDRESS = "http://127.0.0.1:8470"
"""Of the hub, in the guide."""

GUIDE = {block.file: block.body for block in blocks((ROOT / "docs/guides/hub.md").read_text(encoding="utf-8"))}

TASKS = """
import logging
from pathlib import Path


@app.task
async def bill(order: int) -> dict[str, int]:
    logging.getLogger("shop").warning("order %d", order)
    if not Path("paid").exists():
        raise RuntimeError("not paid")
    return {"order": order}
"""
"""A task beside that of the guide: it fails until somebody helps."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(GUIDE["shop.py"] + TASKS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def hub(folder: Path) -> Iterator[Running]:
    with started(folder, "up", "shop:app") as running:
        yield running


def run(folder: Path, *words: str) -> str:
    """What a program says; it must end well."""
    direct = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "NO_COLOR": "1", "PYTHONWARNINGS": "error"}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    given = {**os.environ, **direct, "PATH": path}
    ran = subprocess.run(words, cwd=folder, env=given, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert ran.returncode == 0, f"{words}: {ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


def test_a_python_client_submits_follows_retries_and_reads(
    folder: Path, hub: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "config.yml").write_text("post_hooks: []\n")  # it need not be formatted
    made = ("generate", "--url", f"{hub.address}/openapi.json", "--meta", "none", "--output-path", "headrace_client")
    said = run(folder, "openapi-python-client", *made, "--config", "config.yml")
    # It knows no lines of JSON; the JSON document that they stand for, it does.
    assert re.findall(r"^(?:WARNING|ERROR|Unable|Failure|Cannot|Skipping).*", said, re.MULTILINE) == [
        "WARNING parsing POST /api/jobs/bulk within jobs."
    ]
    assert "Unsupported content type application/x-ndjson" in said
    assert "Endpoint will not be generated" not in said

    monkeypatch.syspath_prepend(folder)
    try:
        _every_operation_is_there(folder)
        _submit_follow_retry_and_read(folder, hub)
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "headrace_client"]:
            del sys.modules[name]

    (folder / "follow.py").write_text(GUIDE["follow.py"].replace(ADDRESS, hub.address), encoding="utf-8")
    printed = run(folder, sys.executable, "follow.py")
    assert "'width': 320" in printed
    assert "<Status.COMPLETED: 'completed'>" in printed


def _every_operation_is_there(folder: Path) -> None:
    modules = {path.stem: path for path in folder.glob("headrace_client/api/*/*.py") if path.stem != "__init__"}
    assert set(modules) == {one.name for one in OPERATIONS}
    for name, path in modules.items():
        module = import_module(f"headrace_client.api.{path.parent.name}.{name}")
        assert callable(module.sync_detailed)
        body = module.sync_detailed.__annotations__.get("body")
        assert body is not Any, f"{name}: the fields of its body are lost"


def _submit_follow_retry_and_read(folder: Path, hub: Running) -> None:
    package: Any = import_module("headrace_client")
    with package.Client(hub.address, timeout=50, httpx_args={"trust_env": False}) as client:
        _use(client, folder)


def _use(client: Any, folder: Path) -> None:
    models: Any = import_module("headrace_client.models")

    def call(operation: str, *given: Any, **more: Any) -> Any:
        return import_module(f"headrace_client.api.jobs.{operation}").sync(*given, client=client, **more)

    payload = models.SubmitBodyPayload.from_dict({"order": 7})
    retry = models.RetryBody(max_retries=0)
    body = models.SubmitBody(task="bill", payload=payload, tags=["first"], retry=retry)
    submitted = call("submit_job", body=body, idempotency_key="order-7")
    assert isinstance(submitted, models.Submitted)
    id = submitted.job_id
    again = call("submit_job", body=body, idempotency_key="order-7")
    assert (again.job_id, again.duplicate) == (id, True)

    assert '"ended":true' in call("job_events", id)  # they end with the job
    refused = call("get_result", id, wait=60)
    assert isinstance(refused, models.ProblemDetails)
    assert (refused.status, refused.job_id) == (409, str(id))
    failed = call("get_job", id)
    assert (failed.status, failed.error.message) == (models.Status.FAILED, "not paid")
    [attempt] = call("get_history", id).attempts
    assert attempt.outcome == models.Outcome.FAILED

    (folder / "paid").touch()
    retried = call("retry_job", id, body=models.RetryAction(delay=0.1))
    assert isinstance(retried, models.Job)
    assert call("get_result", id, wait=60) == {"order": 7}
    job = call("get_job", id)
    assert (job.id, job.status, job.tags) == (id, models.Status.COMPLETED, ["first"])
    assert job.payload.to_dict() == {"order": 7}
    assert call("list_jobs", status=models.Status.COMPLETED).items == [job]
    assert call("count_jobs", task=["bill"]).count == 1
    assert [line.message for line in call("get_logs", id).items] == ["order 7", "order 7"]
    assert call("explain_job", id).facts[0].code == "completed"

    chosen = models.JobFilters(task=["bill"])
    acted = call("act_on_jobs", body=models.RerunAll(act=models.RerunAllAct.RERUN, filter_=chosen))
    assert (acted.counts.done, [one.id for one in acted.verdicts]) == (1, [id])


def test_a_typescript_client_submits_follows_and_reads(folder: Path, hub: Running) -> None:
    modules = tools.openapi_typescript()
    (folder / "node_modules").symlink_to(modules, target_is_directory=True)
    (folder / "package.json").write_text('{"type": "module"}')
    made = (f"{hub.address}/openapi.json", "--default-non-nullable=false", "-o", "headrace.ts")
    said = run(folder, npm.node(), "node_modules/openapi-typescript/bin/cli.js", *made)
    assert not re.search(r"warn|error|⚠|✘", said, re.IGNORECASE), said

    (folder / "follow.ts").write_text(GUIDE["follow.ts"].replace(ADDRESS, hub.address), encoding="utf-8")
    strict = (
        "--strict",
        "--noEmit",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--module",
        "esnext",
        "--moduleResolution",
        "bundler",
    )
    run(folder, npm.node(), "node_modules/typescript/bin/tsc", *strict, "follow.ts")
    printed = run(folder, npm.node(), "--disable-warning=ExperimentalWarning", "follow.ts")
    assert printed == '{"image":"cat.png","width":320} completed\n'
