"""The commands of ``headrace``, a module per noun.

``cli.root`` imports a module when its command is called. Begin with ``queues``, which is short. May import ``cli`` and
everything below it.
"""
