"""What happens to jobs, sent as it happens over server-sent events and WebSocket.

Begin with ``socket`` and ``messages`` (the table of what a socket may say). ``feed`` serves changes of many jobs. May
import the other packages of ``hub``.
"""
