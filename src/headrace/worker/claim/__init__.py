"""From the store to a slot.

Begin with ``fetcher``, which claims jobs. ``buffer`` keeps them until a slot is free, ``collector`` gathers them for
bulk handlers, ``permits`` and ``suspects`` decide what may start. May import what ``worker`` may.
"""
