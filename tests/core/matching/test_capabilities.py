"""What workers in any language say of themselves, and that jobs asked for in either wording find them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.matching.capabilities import Capabilities, capabilities_of
from headrace.core.matching.customers import Customers
from headrace.core.matching.match import meets
from headrace.errors import ConfigError
from headrace.hub.api.vocabulary import Requirements, SubmitBody, submission_of

PAGE = {
    "services": ["comfyui", "a1111"],
    "components": ["text-to-image-xl", "upscaling"],
    "hardware": {"gpu_memory_gb": 16, "gpu_model": "RTX 4090"},
    "customer_access": {"isolation": "loose"},
}


def fits(offered: dict[str, Any], **required: Any) -> bool:
    """Whether a worker that says this of itself gets a job that asks for this in the words of the page."""
    body = SubmitBody(type="t", requirements=Requirements(**required))
    return meets(submission_of(body).options.get("requires", {}), capabilities_of(offered).offers)


def test_the_worker_of_the_page_gets_the_job_of_the_page() -> None:
    assert fits(
        PAGE,
        service_type="comfyui",
        component="text-to-image-xl",
        hardware={"gpu_memory_gb": 8},
        quality_level="quality",
    )
    assert capabilities_of(PAGE).customers is None


@pytest.mark.parametrize(
    ("offered", "required", "met"),
    [
        ({"services": ["a", "b"]}, {"service_type": "b"}, True),
        ({"services": ["a", "b"]}, {"service_type": "c"}, False),
        ({"services": "a"}, {"service_type": "a"}, True),
        ({"services": "all"}, {"service_type": "c"}, True),
        ({"services": ["all"]}, {"service_type": "c"}, True),
        ({"services": []}, {"service_type": "c"}, False),
        ({}, {"service_type": "c"}, False),
        ({"components": "all"}, {"component": "c"}, True),
        ({"components": "c"}, {"component": "c"}, True),
        ({"components": ["b"]}, {"component": "c"}, False),
        ({"hardware": {"gpu_memory_gb": 16}}, {"hardware": {"gpu_memory_gb": 16}}, True),
        ({"hardware": {"gpu_memory_gb": 16}}, {"hardware": {"gpu_memory_gb": 24}}, False),
        ({"hardware": {"gpu_model": "A"}}, {"hardware": {"gpu_model": "A"}}, True),
        ({"hardware": {"gpu_model": "A"}}, {"hardware": {"gpu_model": "B"}}, False),
        ({"hardware": {"gpu_model": ["A", "B"]}}, {"hardware": {"gpu_model": "B"}}, True),
        ({}, {"hardware": {"gpu_memory_gb": 1}}, False),
        ({"quality_levels": ["fast"]}, {"quality_level": "quality"}, False),
        ({"quality_levels": ["fast", "quality"]}, {"quality_level": "quality"}, True),
        ({"quality_levels": "all"}, {"quality_level": "quality"}, True),
        ({"quality_levels": []}, {"quality_level": "quality"}, True),
        ({}, {"quality_level": "quality"}, True),
        ({}, {}, True),
    ],
)
def test_what_is_asked_for_and_what_is_offered(offered: dict[str, Any], required: dict[str, Any], met: bool) -> None:
    assert fits(offered, **required) is met


def test_other_names_are_plain_offers() -> None:
    offers = {"gpu": True, "memory_gb": 24, "models": ["a", "b"], "zone": {"name": "eu"}}
    assert capabilities_of({**offers, "unsaid": None}) == Capabilities(offers)
    assert meets({"gpu": True, "memory_gb": {"min": 8}, "models": "b"}, capabilities_of(offers).offers)


@pytest.mark.parametrize(
    ("access", "customers"),
    [
        ({}, None),
        ({"isolation": "none"}, None),
        ({"isolation": "loose"}, None),
        ({"isolation": "loose", "deny": []}, None),
        ({"allow": ["a"]}, Customers(allow=frozenset("a"))),
        ({"isolation": "loose", "deny": ["a"]}, Customers(deny=frozenset("a"))),
        ({"isolation": "strict"}, Customers(strict=True)),
        (
            {"isolation": "strict", "allow": ["a", "b"], "deny": ["b"]},
            Customers(strict=True, allow=frozenset("ab"), deny=frozenset("b")),
        ),
    ],
)
def test_isolation(access: dict[str, Any], customers: Customers | None) -> None:
    assert capabilities_of({"customer_access": access}) == Capabilities({}, customers)


@pytest.mark.parametrize(
    ("document", "field", "says"),
    [
        ([], "capabilities", "mapping"),
        ({"services": 3}, "capabilities.services", "got `int`"),
        ({"services": ["a", 4]}, "capabilities.services[1]", "got `int`"),
        ({"services": [""]}, "capabilities.services[0]", "length"),
        ({"hardware": ["gpu"]}, "capabilities.hardware", "object"),
        ({"quality_levels": {}}, "capabilities.quality_levels", "array"),
        ({"component": "x"}, "capabilities.component", "a worker lists `components`"),
        ({"headrace.suspect": 1}, "capabilities.headrace.suspect", "keeps that for itself"),
        ({"": 1}, "capabilities", "not empty"),
        ({"big": "x" * 20_000}, "capabilities", "at most 16384 bytes"),
        ({"hardware": {"gpu_memory_gb": 10**400}}, "capabilities.hardware.gpu_memory_gb", "a number of 1329 bits"),
        ({"vram": [1, -(2**53) - 1]}, "capabilities.vram", "-9007199254740993"),
        ({"customer_access": "strict"}, "capabilities.customer_access", "object"),
        ({"customer_access": {"isolation": "x"}}, "capabilities.customer_access.isolation", "none, loose, strict"),
        ({"customer_access": {"alow": ["a"]}}, "capabilities.customer_access.alow", "isolation, allow, deny"),
        ({"customer_access": {"allow": []}}, "capabilities.customer_access.allow", "leave it out"),
        ({"customer_access": {"deny": [" "]}}, "capabilities.customer_access.deny[0]", "not empty"),
        ({"customer_access": {"isolation": "none", "deny": ["a"]}}, "capabilities.customer_access.deny", "`loose`"),
    ],
)
def test_what_cannot_be_used_is_named(document: Any, field: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        capabilities_of(document)
    assert caught.value.field == field
    assert says in str(caught.value)
