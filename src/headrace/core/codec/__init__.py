"""Arguments, results and stream items as JSON text, and back.

Begin with ``json``. ``roundtrip`` checks that a value comes back unchanged, ``value`` has results and documents,
``record`` makes records into JSON for other programs. May import ``core``.
"""
