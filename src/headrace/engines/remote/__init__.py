"""The remote engine: the contract, spoken over HTTP with a hub that has the store."""

from headrace.engines.remote.engine import RemoteEngine

__all__ = ["RemoteEngine"]
