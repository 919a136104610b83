"""Settings of all tests: hypothesis without a clock, and the same examples every time in CI."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "lakewright", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", settings.get_profile("lakewright"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "lakewright")
