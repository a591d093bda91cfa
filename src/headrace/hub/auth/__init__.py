"""Who calls, and what the caller may do: ``authenticator``, ``customers``, ``quotas``, ``login`` of the dashboard.
Imports: ``hub.server``, ``http``.
"""
