"""Scans over Arrow: snapshots, plans, slice reading, and the runners that spread the work."""
