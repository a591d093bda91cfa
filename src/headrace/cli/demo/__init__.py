"""``headrace demo``: an App, its scenario and its screen."""
