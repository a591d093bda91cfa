"""Hints over LISTEN and NOTIFY.

Begin with ``role``, which is the bus. ``listener`` receives, ``notify`` sends. May import ``engines.postgres.store``.
"""
