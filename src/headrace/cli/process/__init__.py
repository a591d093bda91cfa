"""Processes that commands run: workers, their supervisor, renewal, signals, health and logs."""
