"""From the store to a slot: ``fetcher`` claims jobs, ``buffer`` keeps them until a slot is free, ``permits`` and
``suspects`` decide what may start. Imports: ``runtime``, never ``engines``.
"""
