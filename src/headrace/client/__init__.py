"""What an open App does: its sessions, jobs, limits, schedules and transactions."""
