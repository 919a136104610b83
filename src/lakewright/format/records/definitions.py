"""The Avro records of the timeline, as one table of facts, and the schemas built from it.

Notation of the table, one field per line: `s` string, `?T` nullable with default null, `?!T`
nullable without default, `V(n)` nullable int with default n, `arr<T>` and `map<T>`, a record by
its name, `= x` another default, `@R` the release that added the field. Field order is the order on
disk. `schema_json(name, level)` is the schema that a release of that level writes; files of any
release are read with the schema they embed and matched by field name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from lakewright.format.version import RecordLevel

__all__ = ["NAMESPACE", "FieldSpec", "TypeSpec", "record_fields", "record_names", "schema_json"]

NAMESPACE: Final = "org.apache.hudi.avro.model"
"""Namespace of every record."""

_LEVELS = {
    "0.15": RecordLevel.R0_15,
    "1.0.0": RecordLevel.R1_0_0,
    "1.0.2": RecordLevel.R1_0_2,
}

_DEFINITIONS: Final = """
HoodieWriteStat
  fileId: ?s
  path: ?s
  prevCommit: ?s
  numWrites: ?long
  numDeletes: ?long
  numUpdateWrites: ?long
  totalWriteBytes: ?long
  totalWriteErrors: ?long
  partitionPath: ?s
  totalLogRecords: ?long
  totalLogFiles: ?long
  totalUpdatedRecordsCompacted: ?long
  numInserts: ?long
  totalLogBlocks: ?long
  totalCorruptLogBlock: ?long
  totalRollbackBlocks: ?long
  fileSizeInBytes: ?long
  logVersion: ?int @1.0.0
  logOffset: ?long @1.0.0
  baseFile: ?s @1.0.0
  logFiles: ?arr<s> @1.0.0
  cdcStats: ?map<long> @1.0.0
  prevBaseFile: ?s @1.0.2
  minEventTime: ?long @1.0.2
  maxEventTime: ?long @1.0.2
  runtimeStats: ?HoodieRuntimeStats @1.0.2
  totalLogFilesCompacted: ?long @1.0.2
  totalLogReadTimeMs: ?long @1.0.2
  totalLogSizeCompacted: ?long @1.0.2
  tempPath: ?s @1.0.2
  numUpdates: ?long @1.0.2
HoodieRuntimeStats
  totalScanTime: ?long
  totalCreateTime: ?long
  totalUpsertTime: ?long
HoodieCommitMetadata
  partitionToWriteStats: ?map<arr<HoodieWriteStat>>
  compacted: ?boolean @1.0.2
  extraMetadata: ?map<s>
  version: V(1)
  operationType: ?s
HoodieReplaceCommitMetadata
  partitionToWriteStats: ?map<arr<HoodieWriteStat>>
  compacted: ?boolean @1.0.2
  extraMetadata: ?map<s>
  version: V(1)
  operationType: ?s
  partitionToReplaceFileIds: ?map<arr<s>>
HoodieCompactionPlan
  operations: ?arr<HoodieCompactionOperation>
  extraMetadata: ?map<s>
  version: V(1)
  strategy: ?HoodieCompactionStrategy
  preserveHoodieMetadata: [boolean,null] = false
  missingSchedulePartitions: ?arr<s> @1.0.0
HoodieCompactionOperation
  baseInstantTime: ?!s
  deltaFilePaths: ?arr<s>
  dataFilePath: ?s
  fileId: ?!s
  partitionPath: ?s
  metrics: ?map<double>
  bootstrapFilePath: ?s
HoodieCompactionStrategy
  compactorClassName: ?s
  strategyParams: ?map<s>
  version: V(1)
HoodieRequestedReplaceMetadata
  operationType: ?s
  clusteringPlan: ?HoodieClusteringPlan
  extraMetadata: ?map<s>
  version: V(1)
HoodieClusteringPlan
  inputGroups: ?arr<HoodieClusteringGroup>
  strategy: ?HoodieClusteringStrategy
  extraMetadata: ?map<s>
  version: V(1)
  preserveHoodieMetadata: ?boolean
  missingSchedulePartitions: ?arr<s> @1.0.0
HoodieClusteringGroup
  slices: ?arr<HoodieSliceInfo>
  metrics: ?map<double>
  numOutputFileGroups: V(1)
  extraMetadata: ?map<s>
  version: V(1)
HoodieSliceInfo
  dataFilePath: ?s
  deltaFilePaths: ?arr<s>
  fileId: ?!s
  partitionPath: ?s
  bootstrapFilePath: ?s
  version: V(1)
HoodieClusteringStrategy
  strategyClassName: ?s
  strategyParams: ?map<s>
  version: V(1)
HoodieCleanerPlan
  earliestInstantToRetain: ?HoodieActionInstant
  lastCompletedCommitTimestamp: s = ""
  policy: s
  filesToBeDeletedPerPartition: ?map<arr<s>>
  version: V(1)
  filePathsToBeDeletedPerPartition: ?map<arr<HoodieCleanFileInfo>>
  partitionsToBeDeleted: ?arr<s>
  extraMetadata: ?map<s> @0.15
HoodieActionInstant
  timestamp: s
  action: s
  state: s
HoodieCleanFileInfo
  filePath: ?s
  isBootstrapBaseFile: ?boolean
HoodieCleanMetadata
  startCleanTime: s
  timeTakenInMillis: long
  totalFilesDeleted: int
  earliestCommitToRetain: s
  lastCompletedCommitTimestamp: s = ""
  partitionMetadata: map<HoodieCleanPartitionMetadata>
  version: V(1)
  bootstrapPartitionMetadata: ?map<HoodieCleanPartitionMetadata>
  extraMetadata: ?map<s> @0.15
HoodieCleanPartitionMetadata
  partitionPath: s
  policy: s
  deletePathPatterns: arr<s>
  successDeleteFiles: arr<s>
  failedDeleteFiles: arr<s>
  isPartitionDeleted: ?boolean
HoodieInstantInfo
  commitTime: s
  action: s
HoodieRollbackPlan
  instantToRollback: ?HoodieInstantInfo
  RollbackRequests: ?arr<HoodieRollbackRequest>
  version: V(1)
HoodieRollbackRequest
  partitionPath: s
  fileId: ?s
  latestBaseInstant: ?s
  filesToBeDeleted: arr<s> = []
  logBlocksToBeDeleted: ?map<long>
HoodieRollbackMetadata
  startRollbackTime: s
  timeTakenInMillis: long
  totalFilesDeleted: int
  commitsRollback: arr<s>
  partitionMetadata: map<HoodieRollbackPartitionMetadata>
  version: V(1)
  instantsRollback: arr<HoodieInstantInfo> = []
HoodieRollbackPartitionMetadata
  partitionPath: s
  successDeleteFiles: arr<s>
  failedDeleteFiles: arr<s>
  rollbackLogFiles: ?map<long>
  logFilesFromFailedCommit: ?map<long>
HoodieRestorePlan
  instantsToRollback: arr<HoodieInstantInfo> = []
  version: V(2)
  savepointToRestoreTimestamp: ?s
HoodieRestoreMetadata
  startRestoreTime: s
  timeTakenInMillis: long
  instantsToRollback: arr<s>
  hoodieRestoreMetadata: map<arr<[null,HoodieRollbackMetadata]>>
  version: V(1)
  restoreInstantInfo: arr<HoodieInstantInfo> = []
HoodieSavepointMetadata
  savepointedBy: s
  savepointedAt: long
  comments: s
  partitionMetadata: map<HoodieSavepointPartitionMetadata>
  version: V(1)
HoodieSavepointPartitionMetadata
  partitionPath: s
  savepointDataFile: arr<s>
HoodieIndexPlan
  version: V(1)
  indexPartitionInfos: ?arr<HoodieIndexPartitionInfo>
HoodieIndexPartitionInfo
  version: V(1)
  metadataPartitionPath: ?s
  indexUptoInstant: ?s
  extraMetadata: ?map<s> @1.0.0
HoodieIndexCommitMetadata
  version: V(1)
  operationType: ?s
  indexPartitionInfos: ?arr<HoodieIndexPartitionInfo>
HoodieLSMTimelineInstant
  instantTime: ?s
  completionTime: ?s
  action: ?s
  metadata: ?bytes
  plan: ?bytes
  version: int = 1
HoodieArchivedMetaEntry
  hoodieCommitMetadata: ?HoodieCommitMetadata
  hoodieCleanMetadata: ?HoodieCleanMetadata
  hoodieCompactionMetadata: ?HoodieCompactionMetadata
  hoodieRollbackMetadata: ?HoodieRollbackMetadata
  hoodieSavePointMetadata: ?HoodieSavepointMetadata
  commitTime: ?s
  actionType: ?s
  version: V(1)
  hoodieCompactionPlan: ?HoodieCompactionPlan
  hoodieCleanerPlan: ?HoodieCleanerPlan
  actionState: ?s
  hoodieReplaceCommitMetadata: ?HoodieReplaceCommitMetadata
  hoodieRequestedReplaceMetadata: ?HoodieRequestedReplaceMetadata
  HoodieInflightReplaceMetadata: ?HoodieCommitMetadata
  hoodieIndexCommitMetadata: ?HoodieIndexCommitMetadata
  stateTransitionTime: ?s
HoodieCompactionMetadata
  partitionToCompactionWriteStats: ?!map<arr<HoodieCompactionWriteStat>>
HoodieCompactionWriteStat
  partitionPath: ?s
  totalLogRecords: ?long
  totalLogFiles: ?long
  totalUpdatedRecordsCompacted: ?long
  hoodieWriteStat: ?HoodieWriteStat
HoodieMergeArchiveFilePlan
  version: V(1)
  candidate: ?arr<s>
  mergedArchiveFileName: ?s
"""


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """A type of the table: `kind` is a primitive, `array`, `map`, or the name of a record."""

    kind: str
    item: TypeSpec | None = None
    nullable: bool = False
    null_first: bool = True

    @property
    def is_record(self) -> bool:
        """Whether `kind` names a record of the table."""
        return self.kind.startswith("Hoodie")


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A field of a record; `has_default` tells a default of null from none."""

    name: str
    type: TypeSpec
    has_default: bool
    default: Any
    since: RecordLevel


_FIELD = re.compile(r"  (\w+): (\S+)(?: = (\S+))?(?: @(\S+))?")
_PRIMITIVES = {"s": "string", "long": "long", "int": "int", "double": "double", "bytes": "bytes"}
_UNIONS = {"[boolean,null]": TypeSpec("boolean", nullable=True, null_first=False)}


def _parse_type(text: str) -> TypeSpec:
    if text.startswith("?"):
        inner = _parse_type(text.lstrip("?!"))
        return TypeSpec(inner.kind, inner.item, nullable=True)
    if text.startswith("V("):
        return TypeSpec("int", nullable=True, null_first=False)
    if text.startswith("[null,"):
        return TypeSpec(text[6:-1], nullable=True)
    for prefix, kind in (("arr<", "array"), ("map<", "map")):
        if text.startswith(prefix):
            return TypeSpec(kind, _parse_type(text[4:-1]))
    return _UNIONS.get(text) or TypeSpec(_PRIMITIVES.get(text, text))


def _parse_field(line: str) -> FieldSpec:
    name, kind, default, since = _FIELD.findall(line)[0]
    if kind.startswith("V("):
        default = kind[2:-1]
    elif not default and kind.startswith("?") and not kind.startswith("?!"):
        default = "null"
    return FieldSpec(
        name=name,
        type=_parse_type(kind),
        has_default=bool(default),
        default=json.loads(default) if default else None,
        since=_LEVELS[since] if since else RecordLevel.R0_14,
    )


def _parse_definitions() -> dict[str, tuple[FieldSpec, ...]]:
    records: dict[str, list[FieldSpec]] = {}
    for line in _DEFINITIONS.strip().splitlines():
        if line.startswith("  "):
            records[next(reversed(records))].append(_parse_field(line))
        else:
            records[line] = []
    return {name: tuple(fields) for name, fields in records.items()}


_RECORDS: Final = _parse_definitions()


def record_names() -> tuple[str, ...]:
    """Names of all records, without the namespace."""
    return tuple(_RECORDS)


def record_fields(name: str) -> tuple[FieldSpec, ...]:
    """The fields of a record in their order on disk."""
    return _RECORDS[name]


@lru_cache(maxsize=128)
def schema_json(name: str, level: RecordLevel = RecordLevel.R1_0_2) -> str:
    """The Avro schema of a record as releases of `level` write it, as compact JSON."""
    return json.dumps(_record_node(name, level, set()), separators=(",", ":"))


def _record_node(name: str, level: RecordLevel, seen: set[str]) -> Any:
    if name in seen:
        return name
    first = not seen
    seen.add(name)
    fields = []
    for spec in _RECORDS[name]:
        if spec.since > level:
            continue
        node: dict[str, Any] = {"name": spec.name, "type": _type_node(spec.type, level, seen)}
        if spec.has_default:
            node["default"] = spec.default
        fields.append(node)
    head = {"type": "record", "name": name}
    return {**head, **({"namespace": NAMESPACE} if first else {}), "fields": fields}


def _type_node(spec: TypeSpec, level: RecordLevel, seen: set[str]) -> Any:
    node: Any = spec.kind
    if spec.is_record:
        node = _record_node(spec.kind, level, seen)
    elif spec.kind == "string":
        node = {"type": "string", "avro.java.string": "String"}
    elif spec.item is not None and spec.kind == "array":
        node = {"type": "array", "items": _type_node(spec.item, level, seen)}
    elif spec.item is not None:
        values = _type_node(spec.item, level, seen)
        node = {"type": "map", "values": values, "avro.java.string": "String"}
    if not spec.nullable:
        return node
    return ["null", node] if spec.null_first else [node, "null"]
