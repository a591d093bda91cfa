"""What commands print: tables, texts, timelines, JSON.

Begin with ``console``, through which everything is printed; ``jobs`` and ``store`` make the tables. May import ``core``
and other modules of ``cli``.
"""
