"""One attempt of one job: ``run`` drives it, ``call`` calls the handler, ``context`` is what the handler holds,
``writers`` store what it adds, ``hooks`` are the user's callbacks and middleware. Imports: ``runtime``, never
``engines``.
"""
