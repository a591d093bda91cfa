"""``manage.py headrace``: runs the command line of headrace in a process of its own, with the App of the project."""
