"""Hints over LISTEN and NOTIFY: ``role`` is the bus, ``listener`` receives, ``notify`` sends. Imports:
``engines.postgres.store``.
"""
