"""Metrics for Prometheus: a collector for a registry of your own; ``headrace worker --health`` serves the same.

.. code-block:: python

    from prometheus_client import REGISTRY
    from headrace.contrib.prometheus import HeadraceCollector

    REGISTRY.register(HeadraceCollector(app))

Begin with ``catalogue`` (every metric) and ``collector``. ``process`` reads the workers of this process, ``store`` the
store. May import ``app`` and below.
"""

from __future__ import annotations

from importlib.util import find_spec

from headrace.errors import MissingExtra

if find_spec("prometheus_client") is None:
    raise MissingExtra("headrace.contrib.prometheus", "prometheus-client", "prometheus")

from headrace.contrib.prometheus.collector import HeadraceCollector  # after the check for a missing extra

__all__ = ["HeadraceCollector"]
