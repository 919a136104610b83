"""Plots of benchmark results as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "lakewright"

from matplotlib import pyplot as plt  # noqa: E402


def plot_bars(groups: Mapping[str, Mapping[str, float]], path: Path, title: str) -> None:
    """Grouped bars: one group per workload, one bar per contender."""
    figure, axes = plt.subplots(figsize=(7, 3.2))
    names = list(next(iter(groups.values())))
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        xs = [g + i * width for g in range(len(groups))]
        bars = axes.bar(xs, [v[name] for v in groups.values()], width, label=name)
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.set_xticks([g + 0.4 - width / 2 for g in range(len(groups))], list(groups))
    axes.set_ylabel("wall seconds")
    axes.set_title(title)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def plot_curves(
    series: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    path: Path,
    title: str,
    *,
    log_y: bool = False,
    y: str = "wall seconds",
) -> None:
    """One line per axis over a logarithmic scale, or over two of them."""
    figure, axes = plt.subplots(figsize=(7, 3.2))
    for name, (points, walls) in series.items():
        axes.plot(points, walls, marker="o", label=name)
    axes.set_xscale("log", base=10 if log_y else 2)
    if log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_ylabel(y)
    axes.set_title(title)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
