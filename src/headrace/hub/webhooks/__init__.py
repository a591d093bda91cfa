"""Delivers webhooks: signed, and only to allowed addresses.

Begin with ``delivery``, the handler of the jobs that deliver. May import ``hub.options``, ``worker`` and below.
"""

from headrace.hub.webhooks.delivery import webhook_worker

__all__ = ["webhook_worker"]
