"""From a draft to a stored job.

Begin with ``submit``. ``direct`` stores a job on the caller's thread, ``transaction`` on the caller's connection,
``by_name`` makes drafts of tasks that this program does not have. May import what ``client`` may.
"""
