"""HTTP routes that become jobs: one core, and a module for each web framework.

Begin with ``submit`` (from a request to a job) and ``status`` (the pages that show it). A framework's module reads an
``EndpointRequest`` and sends an ``EndpointResponse``. May import ``http``, ``app`` and below.
"""
