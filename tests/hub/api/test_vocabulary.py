"""What the body of a submit means."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Retry
from headrace.client.options import JobOptions
from headrace.core.job import Spec
from headrace.core.lifecycle.submission import submit
from headrace.core.matching.match import meets
from headrace.errors import ConfigError
from headrace.http.problems import Problem
from headrace.hub.api.vocabulary import SubmitBody, requirements_of, submission_of

NOW = datetime(2027, 1, 1, tzinfo=UTC)


def options_of(**body: Any) -> dict[str, Any]:
    data = msgspec.json.encode({"task": "resize", **body})
    return submission_of(msgspec.json.decode(data, type=SubmitBody)).options


def test_our_own_words_are_the_options_of_a_job() -> None:
    id = UUID(int=7)
    said: dict[str, Any] = {
        "queue": "images",
        "priority": "high",
        "not_before": datetime(2027, 1, 1, tzinfo=UTC),
        "dedup": "k",
        "dedup_for": 60.0,
        "on_duplicate": "raise",
        "request_key": "r",
        "timeout": None,
        "heartbeat": 60.0,
        "remote_heartbeat": None,
        "retention": {"failed": 5.0},
        "tags": ("a", "b"),
        "metadata": {"x": [1]},
        "requires": {"gpu": 1},
        "customer": "c",
        "concurrency_key": "t",
        "after": (id,),
        "after_when": "ended",
        "on_parent_failure": "fail",
        "trace": {"traceparent": "00"},
        "webhook": {"url": "https://example.com"},
    }
    assert options_of(**said) == said
    assert options_of(retry={"max_retries": 5, "backoff": [1, 2], "jitter": False}) == {
        "retry": Retry(5, backoff=[1, 2], jitter=False)
    }
    assert options_of(retry={}) == {"retry": Retry()}
    assert options_of(retry={"initial": 3600})["retry"].cap == 3600
    with pytest.raises(ConfigError, match="cap must be at least initial"):
        options_of(retry={"initial": 3600, "cap": 60})
    assert options_of(retention=60, delay=5) == {"retention": 60.0, "delay": 5.0}
    assert options_of() == {}


def test_whatever_may_be_asked_for_can_be_said() -> None:
    """But for what only Python has: a connection, ids that come of a handler's own calls, and what a route that becomes
    a job keeps of its request."""
    ours = {"connection", "derived_id", "headers", "route", "query"}
    assert set(JobOptions.__annotations__) - ours <= set(SubmitBody.__struct_fields__)


def test_a_job_of_the_page_must_report_every_minute_unless_it_says_otherwise() -> None:
    def said(**fields: Any) -> dict[str, Any]:
        return submission_of(msgspec.convert({"type": "t", **fields}, SubmitBody)).options

    assert said() == {"remote_heartbeat": 60.0}
    assert said(heartbeat=5) == {"heartbeat": 5.0}
    assert said(heartbeat=None) == {"heartbeat": None}
    assert said(remote_heartbeat=90) == {"remote_heartbeat": 90.0}
    assert options_of() == {}


def test_the_words_of_the_page_mean_the_same() -> None:
    assert options_of(customer_id="c", idempotency_key="r") == {"customer": "c", "request_key": "r"}
    assert options_of(max_retries=2, retry_delays=[5, 15, 30], retry_conditions=["A"], no_retry_conditions=["B"]) == {
        "retry": Retry(2, backoff=[5, 15, 30], jitter=False, retry_on=["A"], give_up_on=["B"])
    }
    assert options_of(max_retries=2)["retry"].jitter
    hook = {"type": "bearer_token", "token": "t"}
    assert options_of(webhook_url="https://example.com", events=["progress"], authentication=hook) == {
        "webhook": {"url": "https://example.com", "events": ["progress"], "authentication": hook}
    }
    assert submission_of(SubmitBody(type="resize", task="resize")).task == "resize"


REQUIREMENTS = {
    "service_type": "comfyui",
    "component": "upscaling",
    "hardware": {"gpu_memory_gb": 8, "gpu_model": "RTX 4090"},
    "quality_level": "quality",
    "timeout_minutes": 15,
}
WORKER = {
    "services": ["comfyui", "a1111"],
    "components": ["upscaling"],
    "hardware": {"gpu_memory_gb": 16, "gpu_model": "RTX 4090"},
}


@pytest.mark.parametrize(
    ("other", "taken"),
    [
        ({}, True),
        ({"services": ["a1111"]}, False),
        ({"components": "all"}, True),
        ({"components": ["text-to-image-xl"]}, False),
        ({"components": None}, False),
        ({"hardware": {"gpu_memory_gb": 8, "gpu_model": "RTX 4090"}}, True),
        ({"hardware": {"gpu_memory_gb": 7, "gpu_model": "RTX 4090"}}, False),
        ({"hardware": {"gpu_memory_gb": 16, "gpu_model": "A100"}}, False),
        ({"hardware": {}}, False),
        ({"quality_levels": ["quality", "fast"]}, True),
        ({"quality_levels": ["fast"]}, False),
    ],
)
def test_who_meets_the_requirements_of_the_page(other: dict[str, Any], taken: bool) -> None:
    options = options_of(requirements=REQUIREMENTS)
    assert meets(options["requires"], WORKER | other) is taken
    assert (options["timeout"], options["metadata"]) == (900.0, {"quality_level": "quality"})
    assert "timeout_minutes" not in options["requires"], "a policy is no requirement"


@pytest.mark.parametrize(
    ("excluded", "other", "taken"),
    [
        ({"service_type": "a1111"}, {}, False),
        ({"service_type": "a1111"}, {"services": ["comfyui"]}, True),
        ({"service_type": "a1111"}, {"services": "all"}, False),
        ({"component": "upscaling"}, {}, False),
        ({"component": "inpainting"}, {}, True),
        ({"component": "inpainting"}, {"components": "all"}, False),
        ({"component": "inpainting"}, {"components": None}, True),
        ({"hardware": {"gpu_model": "RTX 4090"}}, {}, False),
        ({"hardware": {"gpu_model": "RTX 3080"}}, {}, True),
        ({"hardware": {"gpu_model": "RTX 3080", "gpu_memory_gb": 16}}, {}, False),
        ({"hardware": {"gpu_memory_gb": 24}}, {}, True),
        ({"hardware": {"gpu_memory_gb": 24}}, {"hardware": None}, True),
        ({"hardware": {}}, {"hardware": None}, True),
        ({}, {}, True),
    ],
)
def test_what_a_worker_must_not_have(excluded: dict[str, Any], other: dict[str, Any], taken: bool) -> None:
    offers = {name: one for name, one in (WORKER | other).items() if one is not None}
    assert meets(options_of(requirements={"not": excluded}).get("requires", {}), offers) is taken
    both = options_of(requirements={"service_type": "comfyui", "hardware": {"gpu_memory_gb": 8}, "not": excluded})
    assert meets(both["requires"], offers) is (taken and "hardware" in offers)


HARDWARE = st.dictionaries(
    st.sampled_from(["gpu_memory_gb", "gpu_model"]), st.integers(1, 9) | st.just("A"), min_size=1
)
EXCLUDED = st.fixed_dictionaries(
    {}, optional={"service_type": st.just("s"), "component": st.just("c"), "hardware": HARDWARE}
)
REQUIRED = st.fixed_dictionaries(
    {},
    optional={
        "service_type": st.just("x"),
        "component": st.just("y"),
        "hardware": HARDWARE,
        "quality_level": st.just("z"),
        "not": EXCLUDED.filter(bool),
        "timeout_minutes": st.just(15),
    },
)


@given(REQUIRED)
def test_a_worker_is_told_what_was_asked_for(asked: dict[str, Any]) -> None:
    options = options_of(requirements=asked)
    spec = Spec(task="t", created_at=NOW, requires=options.get("requires", {}), timeout=options.get("timeout", None))
    job = submit(UUID(int=1), spec, "{}", NOW)
    assert requirements_of(job) == asked
    plain = Spec(task="t", created_at=NOW, requires={"a": {"not": {"in": [1]}}, "services": {"not": "x"}}, timeout=None)
    assert requirements_of(submit(UUID(int=1), plain, "{}", NOW)) == plain.requires, "others stay as they were said"


def test_requirements_in_both_words_are_laid_together() -> None:
    options = options_of(requires={"region": "eu"}, metadata={"x": 1}, requirements={"quality_level": "fast"})
    assert options["requires"] == {"region": "eu", "quality_levels": {"in": ["fast", None]}}
    assert options["metadata"] == {"x": 1, "quality_level": "fast"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"type": "other"}, "type"),
        ({"customer": "a", "customer_id": "b"}, "customer_id"),
        ({"request_key": "a", "idempotency_key": "b"}, "idempotency_key"),
        ({"timeout": 60, "requirements": {"timeout_minutes": 2}}, "requirements.timeout_minutes"),
        ({"retry": {"max_retries": 1}, "max_retries": 2}, "max_retries"),
        ({"retry": {"backoff": "fixed"}, "retry_delays": [1]}, "retry_delays"),
        ({"requires": {"services": "x"}, "requirements": {"service_type": "y"}}, "requirements.service_type"),
        ({"metadata": {"quality_level": "x"}, "requirements": {"quality_level": "y"}}, "requirements.quality_level"),
        ({"webhook": {"url": "https://a.example"}, "webhook_url": "https://b.example"}, "webhook_url"),
    ],
)
def test_what_is_said_twice_and_differently_is_refused(body: dict[str, Any], field: str) -> None:
    with pytest.raises(Problem) as caught:
        options_of(**body)
    assert (caught.value.status, caught.value.details.errors[0].field) == (400, field)


def test_what_is_said_twice_and_alike_is_said() -> None:
    said = {"timeout": 120, "requirements": {"timeout_minutes": 2}, "retry": {"max_retries": 1}, "max_retries": 1}
    assert options_of(**said) == {"timeout": 120.0, "retry": Retry(1)}


def test_a_key_beside_the_body_is_the_request_key() -> None:
    assert submission_of(SubmitBody(task="a"), "k").options == {"request_key": "k"}
    assert submission_of(SubmitBody(task="a", request_key="k"), "k").options == {"request_key": "k"}
    with pytest.raises(Problem, match="Idempotency-Key"):
        submission_of(SubmitBody(task="a", request_key="other"), "k")


def test_a_submit_without_a_task_is_refused() -> None:
    with pytest.raises(Problem, match="`task`"):
        submission_of(SubmitBody(payload={"a": 1}))
