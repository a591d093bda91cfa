"""From a draft to a stored job. Begin with ``submit``. ``direct`` is the way on the caller's thread, ``transaction``
the one on the caller's connection, ``by_name`` makes drafts of tasks that this program does not have. Imports:
``worker``, ``runtime``.
"""
