"""Live events of jobs, over server-sent events and WebSocket.

Begin with ``socket`` and ``messages`` (the table of what a client may send). ``feed`` serves changes of many jobs. May
import the other packages of ``hub``.
"""
