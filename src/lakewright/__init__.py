"""lakewright: a Hudi-format lakehouse engine in Python."""

__version__ = "0.1.0.dev0"
