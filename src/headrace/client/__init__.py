"""What a program holds of headrace: tasks, drafts, handles, batches, and an App's open session.

Begin with ``task`` (submitting), ``handle`` (a stored job) and ``lifetime`` (opening and closing). ``submission``
stores jobs, ``api`` has what exists in a store. May import ``worker``, ``maintenance`` and below; of ``engines`` only
``connect``.
"""
