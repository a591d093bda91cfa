"""Headrace: a durable job system. One lifecycle, any engine."""
