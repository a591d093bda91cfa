"""The pytest plugin, found by its entry point; it brings the fixture ``headrace_harness``."""
