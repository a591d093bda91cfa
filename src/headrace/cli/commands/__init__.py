"""The commands of ``headrace``, a module per noun; ``cli.main`` imports one when it is called."""
