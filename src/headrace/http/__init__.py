"""What all HTTP shells share: problems, entity tags, server-sent events, positions of jobs.

Begin with ``problems``, which maps every error to its status. ``responses`` needs Starlette, the rest no framework. May
import ``app`` and below.
"""
