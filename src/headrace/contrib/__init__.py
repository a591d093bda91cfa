"""Connections of headrace with other libraries: Django, OpenTelemetry, Prometheus.

Each module needs its extra. Begin with ``otel``, which is one module. May import ``app``, ``http``, ``endpoints`` and
below.
"""
