"""Benchmarks: ratios within one interleaved run, results checked for equality before they are timed."""
