"""Scraped pages as data."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


def samples(page: str) -> dict[str, dict[Labels, float]]:
    """The samples of a page in the text format: by name, then by labels."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(page):
        for one in family.samples:
            found.setdefault(one.name, {})[frozenset(one.labels.items())] = one.value
    return found


def value(page: str, name: str, **labels: str) -> float | None:
    """The sample of this name and exactly these labels; None if there is none."""
    return samples(page).get(name, {}).get(frozenset(labels.items()))
