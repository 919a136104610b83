"""Names of the table properties that lakewright gives a meaning to, spelled as on disk.

Only names: defaults and types are on `TableProperties`. Keys that are not listed here are kept
untouched whenever the properties are rewritten.
"""

from __future__ import annotations

NAME = "hoodie.table.name"
DATABASE = "hoodie.database.name"
TYPE = "hoodie.table.type"
VERSION = "hoodie.table.version"
INITIAL_VERSION = "hoodie.table.initial.version"
LAYOUT_VERSION = "hoodie.timeline.layout.version"
ARCHIVE_FOLDER = "hoodie.archivelog.folder"
TIMELINE_PATH = "hoodie.timeline.path"
HISTORY_PATH = "hoodie.timeline.history.path"
CHECKSUM = "hoodie.table.checksum"
TABLE_FORMAT = "hoodie.table.format"

BASE_FILE_FORMAT = "hoodie.table.base.file.format"
BASE_FILE_FORMAT_OLD = "hoodie.table.ro.file.format"
LOG_FILE_FORMAT = "hoodie.table.log.file.format"
LOG_FILE_FORMAT_OLD = "hoodie.table.rt.file.format"
MULTIPLE_FORMATS = "hoodie.table.multiple.base.file.formats.enable"
BOOTSTRAP_BASE_PATH = "hoodie.bootstrap.base.path"

RECORD_KEY_FIELDS = "hoodie.table.recordkey.fields"
PARTITION_FIELDS = "hoodie.table.partition.fields"
ORDERING_FIELDS = "hoodie.table.ordering.fields"
PRECOMBINE_FIELD = "hoodie.table.precombine.field"

PAYLOAD_CLASS = "hoodie.compaction.payload.class"
LEGACY_PAYLOAD_CLASS = "hoodie.table.legacy.payload.class"
MERGE_MODE = "hoodie.record.merge.mode"
MERGE_STRATEGY_ID = "hoodie.record.merge.strategy.id"
MERGE_STRATEGY_ID_OLD = "hoodie.compaction.record.merger.strategy"
PARTIAL_UPDATE_MODE = "hoodie.table.partial.update.mode"
MERGE_PROPERTY_PREFIX = "hoodie.record.merge.property."

KEY_GENERATOR_CLASS = "hoodie.table.keygenerator.class"
KEY_GENERATOR_TYPE = "hoodie.table.keygenerator.type"
TIME_KEYGEN_PREFIX = "hoodie.keygen.timebased."
TIME_KEYGEN_PREFIX_OLD = "hoodie.deltastreamer.keygen.timebased."

HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
DROP_PARTITION_COLUMNS = "hoodie.datasource.write.drop.partition.columns"
POPULATE_META_FIELDS = "hoodie.populate.meta.fields"
META_FIELDS_MODE = "hoodie.meta.fields.mode"
PARTITION_METAFILE_BASE_FORMAT = "hoodie.partition.metafile.use.base.format"

TIMELINE_TIMEZONE = "hoodie.table.timeline.timezone"
CDC_ENABLED = "hoodie.table.cdc.enabled"
CDC_MODE = "hoodie.table.cdc.supplemental.logging.mode"
CLUSTERING_REMOVABLE = "hoodie.clustering.plan.removable"
LOG_COMPACTION_REMOVABLE = "hoodie.log.compaction.plan.removable"
CREATE_SCHEMA = "hoodie.table.create.schema"
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
METADATA_PARTITIONS_INFLIGHT = "hoodie.table.metadata.partitions.inflight"
INDEX_DEFINITIONS_PATH = "hoodie.table.index.defs.path"
