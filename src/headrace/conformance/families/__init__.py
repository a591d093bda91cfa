"""What the role ``families`` promises: children, graphs, batches.

Begin with ``children``. May import ``conformance``, ``engine`` and below.
"""
