"""What exists in a store, a module per noun: ``queues``, ``limits``, ``schedules``, ``workers``, ``keys`` …

Begin with ``jobs`` and ``actions``. May import what ``client`` may.
"""
