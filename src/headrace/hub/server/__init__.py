"""The HTTP server of the hub: from a connection to an operation, and back.

Begin with ``server``, which starts it, and ``dispatch``, which routes a request to its operation. ``operation`` is what
the tables are made of, ``problems`` writes errors. May import ``http``.
"""
