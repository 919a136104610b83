"""The process from which Spark forks its Python workers, with an eye on what a service changes.

See `interop.kill_daemon`.
"""

from __future__ import annotations

from pyspark.daemon import manager

from interop.service_points import WatchPlan, watch_changes

if __name__ == "__main__":
    watch_changes(WatchPlan.handed_down())
    manager()
