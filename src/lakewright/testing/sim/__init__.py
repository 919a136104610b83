"""The simulator: whole worlds of writers, readers, crashes and clocks, each from one seed.

`world` is where to begin: actors share a disk, one runs at a time, and the scheduler switches only
inside storage operations, clock readings and `spawn`. `workloads` says what actors do, `checkers`
what must hold; `python -m lakewright.testing.sim` runs many seeds, or one again with its trace.
"""
