"""The remote engine: the contract over HTTP, with a hub that has the store.

Begin with ``engine`` and ``calls``. May import ``runtime`` and below; ``engine.wire`` has the bytes.
"""

from headrace.engines.remote.engine import RemoteEngine

__all__ = ["RemoteEngine"]
