"""The tiny engine keeps the contract: the whole suite runs on it."""

from pathlib import Path

from tiny_engine import TinyEngine

from headrace.conformance import Suite
from headrace.core.defaults import Rules
from headrace.engine import Engine
from headrace.runtime.host import Host


class TestTinyEngine(Suite):
    durable = False  # two engines made for one place are two stores

    def engine(self, rules: Rules, host: Host, place: Path) -> Engine:
        return TinyEngine(rules, host)
