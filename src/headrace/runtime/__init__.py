"""What programs and workers share: clock, host, services, totals, secrets.

Begin with ``host`` (time, chance, threads) and ``service`` (start and stop of a loop). ``retries`` has the pauses
between tries, ``writes`` is how they write, ``watch`` how they wait. May import ``engine`` and below.
"""
