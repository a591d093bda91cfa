"""Schedules: their rules, when they fire, and what becomes of them."""
