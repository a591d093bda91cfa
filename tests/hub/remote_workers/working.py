"""A worker that speaks the protocol over HTTP, for tests."""

from __future__ import annotations

from typing import Any

import httpx2

__all__ = ["CAN", "PAGE_JOB", "example_of", "said", "submitted", "work"]

CAN = {"services": ["comfyui"], "hardware": {"gpu_memory_gb": 16}}
PAGE_JOB = {
    "type": "text_to_image",
    "payload": {"prompt": "mountains"},
    "requirements": {"service_type": "comfyui", "hardware": {"gpu_memory_gb": 8}, "timeout_minutes": 15},
}


async def submitted(client: httpx2.AsyncClient, **fields: Any) -> str:
    """A job of the page, with these fields besides."""
    answer = await client.post("/api/jobs", json={**PAGE_JOB, **fields})
    assert answer.status_code == 201, answer.text
    id: str = answer.json()["job_id"]
    return id


async def said(client: httpx2.AsyncClient, message: str, /, **fields: Any) -> httpx2.Response:
    """The answer to a message."""
    return await client.post(f"/api/work/{message}", json=fields)


async def work(client: httpx2.AsyncClient, message: str, /, **fields: Any) -> dict[str, Any]:
    """What a message is answered with, which is no problem."""
    answer = await said(client, message, **fields)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def example_of(client: httpx2.AsyncClient, example: dict[str, Any]) -> dict[str, Any]:
    """An example of a message, with a lease and a token that count."""
    example = dict(example)
    if "token" in example or "lease" in example:
        token = (await work(client, "register_worker", worker_id="example", tasks=["resize"]))["token"]
        submit = {"task": "resize", "payload": {"image": "cat.png"}, "queue": "examples"}
        job = (await client.post("/api/jobs", json=submit)).json()["job_id"]
        given = await work(client, "claim_job", worker_id="example", token=token, queues=["examples"], wait=20)
        assert given["job_id"] == job
        real = {"token": token, "lease": given["lease"]}
        example |= {name: real[name] for name in real if name in example}
    return example
