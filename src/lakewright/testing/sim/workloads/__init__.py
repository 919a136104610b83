"""Workloads: what the processes of a world do. One module each, registered here by name."""

from __future__ import annotations

from lakewright.testing.sim.workloads import (
    indexed,
    keyed_writes,
    plans,
    real_services,
    real_writes,
    services,
    toys,
    transactions,
)
from lakewright.testing.sim.workloads.workload import Workload

__all__ = ["WORKLOADS", "Workload"]

WORKLOADS: dict[str, Workload] = {
    w.name: w
    for w in (
        *toys.WORKLOADS,
        *transactions.WORKLOADS,
        *real_writes.WORKLOADS,
        *keyed_writes.WORKLOADS,
        *services.WORKLOADS,
        *plans.WORKLOADS,
        *real_services.WORKLOADS,
        *indexed.WORKLOADS,
    )
}
