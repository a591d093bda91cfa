"""Webhooks as values.

Begin with ``delivery``, which decides which messages a change sends. ``subscription`` says who wants them, ``target``
what a job carries of that, ``messages`` which numbers are missing. May import ``core``.
"""
