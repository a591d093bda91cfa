"""The file: its connection and threads, its schema, who else has it open, and what tells when it changes. Begin with
``connection`` and ``thread``. Imports: ``engines.sql``.
"""
