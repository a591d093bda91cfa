"""Where handlers run: the worker's event loop, its threads, its child processes, and signals. Imports: ``runtime``,
never ``engines``.
"""
