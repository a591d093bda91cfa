"""The commands of ``headrace``, a module per noun; ``cli.root`` imports one when it is called."""
