"""API keys, signed tokens and dashboard sessions as values.

Begin with ``api_keys``. May import ``core``.
"""
