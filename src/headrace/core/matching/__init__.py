"""Which worker may run which job: ``match`` compares what a job requires with what a worker offers, ``fit`` chooses
among several, ``shortfall`` says what is missing. Imports: ``core``.
"""
