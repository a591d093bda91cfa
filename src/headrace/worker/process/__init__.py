"""Where handlers run: the worker's event loop, its threads, its child processes; and signals.

Begin with ``pool`` (child processes) and ``child`` (what runs in one). May import what ``worker`` may.
"""
