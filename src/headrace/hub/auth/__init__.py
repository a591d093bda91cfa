"""Authenticates callers, and limits what they may do.

Begin with ``authenticator``. ``customers`` limits what a customer's key sees, ``quotas`` how much it may have,
``login`` is the dashboard's, ``loopback`` is for a hub without keys. May import ``hub.server`` and what ``hub`` may.
"""
