"""Benchmarks: ratios within one interleaved run; results are equal before they are timed."""
