"""Live: what happens to jobs, told as it happens, over server-sent events and over WebSocket."""
