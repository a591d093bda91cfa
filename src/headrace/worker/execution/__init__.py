"""One attempt of one job.

Begin with ``run``, which drives it, and ``call``, which calls the handler. ``context`` is what the handler holds,
``writers`` store what it adds, ``hooks`` are the user's callbacks and middleware. May import what ``worker`` may.
"""
