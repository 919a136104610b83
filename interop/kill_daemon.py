"""The process from which Spark forks its Python workers, with an eye on what they change.

Spark runs it as `spark.python.daemon.module`. Until it has forked it must import nothing but the
standard library and Spark's own daemon.
"""

from __future__ import annotations

from pyspark.daemon import manager

from interop.kill_count import WORKER, KillPlan, count_changes

if __name__ == "__main__":
    count_changes(KillPlan.handed_down(), WORKER)
    manager()
