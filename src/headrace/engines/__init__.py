"""The engines: each keeps the promises of ``headrace.engine`` on a store of its own kind.

Begin with ``connect``, the one module that names engines, and ``memory``, the shortest of them. May import ``runtime``
and below, never ``worker``; no engine imports another.
"""
