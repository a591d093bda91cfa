"""Webhooks as values: ``subscription`` (who wants which messages), ``target`` (what a job carries of it), ``delivery``
(which messages a change sends), ``messages`` (their numbers). Imports: ``core``.
"""
