"""The collector in a registry."""

from __future__ import annotations

import importlib
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headrace import App
from headrace.contrib.prometheus import HeadraceCollector
from headrace.contrib.prometheus.catalogue import METRICS
from headrace.errors import ConfigError, MissingExtra
from tests.contrib.prometheus.pages import samples


def test_names_and_labels_are_those_of_the_catalogue() -> None:
    for name, metric in METRICS.items():
        assert name.startswith("headrace_")
        assert not name.endswith(("_total", "_count", "_sum", "_bucket")), "or Prometheus reads them as something else"
        assert metric.help.endswith((".", "…")) or ";" in metric.help
        if metric.kind == "histogram":
            assert name.endswith("_seconds")


async def test_a_registry_has_it_once() -> None:
    app, registry = App("memory://"), CollectorRegistry()
    registry.register(HeadraceCollector(app))
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(HeadraceCollector(app))
    async with app:
        assert "headrace_store_up" not in samples(generate_latest(registry).decode())  # a loop does not wait


def test_without_its_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "headrace.contrib.prometheus")
    with pytest.raises(MissingExtra, match=r'needs prometheus-client: pip install "headrace\[prometheus\]"'):
        importlib.import_module("headrace.contrib.prometheus")


def test_it_takes_an_app() -> None:
    with pytest.raises(ConfigError, match=r"takes the App, as in HeadraceCollector\(app\), not 'memory://'"):
        HeadraceCollector("memory://")  # type: ignore[arg-type]
