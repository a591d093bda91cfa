"""Webhooks as values.

Begin with ``delivery``, which decides which messages a change sends. ``subscription`` is a stored webhook, ``target``
the reference to it in a job, ``messages`` finds missing numbers. May import ``core``.
"""
