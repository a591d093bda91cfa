"""The engines: each keeps the promises of ``headrace.engine`` on a store of its own kind."""
