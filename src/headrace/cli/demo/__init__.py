"""``headrace demo``: an App, the scenario that it plays, and the screen that shows it.

Begin with ``command``. May import ``cli`` and everything below it.
"""
