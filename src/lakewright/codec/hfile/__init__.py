"""HFile: HBase's sorted key-value file, the container of Hudi's metadata table."""

from lakewright.codec.hfile.reader import HFile

__all__ = ["HFile"]
