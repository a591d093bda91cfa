"""Find, count and failures as SQL: ``finder`` runs a search, ``conditions`` and ``candidates`` write it, ``dialect``
holds what differs between the databases. Imports: ``engines.sql`` and ``core``.
"""
