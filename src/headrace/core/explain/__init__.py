"""Explanations: why a job is running, is not, or never will."""
