"""What the role ``records`` promises: queries, searches, positions, verification.

Begin with ``queries``. May import ``conformance``, ``engine`` and below.
"""
