"""What exists in a store, a module per noun (``app.queues`` is ``queues``). Begin with ``jobs``. Imports: ``runtime``,
``engines.connect``.
"""
