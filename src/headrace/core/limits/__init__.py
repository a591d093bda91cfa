"""Limits: concurrency and rate limits of queues, tasks and keys."""
