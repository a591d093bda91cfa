"""Delivering webhooks: signed, to addresses that may be called, and to no others."""

from headrace.hub.webhooks.delivery import webhook_worker

__all__ = ["webhook_worker"]
