"""Payloads, results and stream items as JSON text."""
