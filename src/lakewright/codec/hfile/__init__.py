"""HFile: HBase's sorted key-value file, the container of Hudi's metadata table."""

from lakewright.codec.hfile.reader import HFile
from lakewright.codec.hfile.writer import HFilePolicy, HFileSummary, HFileWriter, encode_hfile

__all__ = ["HFile", "HFilePolicy", "HFileSummary", "HFileWriter", "encode_hfile"]
