"""The HTTP server of the hub: ``server`` starts it, ``dispatch`` leads a request to its operation, ``problems`` writes
errors, ``access_log`` logs. Imports: ``http``.
"""
