"""Who calls, and what the caller may do.

Begin with ``authenticator``. ``customers`` bounds what a customer's key sees, ``quotas`` how much it may have,
``login`` is that of the dashboard, ``loopback`` is for a hub without keys. May import ``hub.server`` and what ``hub``
may.
"""
