"""The contract, served to remote engines: verbs as requests, hints over a socket."""
