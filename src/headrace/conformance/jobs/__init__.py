"""What the role ``jobs`` promises, a module per topic.

Begin with ``insert``, ``claim`` and ``apply``. May import ``conformance``, ``engine`` and below, and the memory engine
as the model.
"""
