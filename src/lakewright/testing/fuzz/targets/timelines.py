"""Timelines: names of instant and data files, listings, manifests, and archives of version 6."""

from __future__ import annotations

import struct
from random import Random
from typing import Any, Final

from lakewright.errors import FormatError, UnsupportedTableError
from lakewright.format import property_keys as keys
from lakewright.format.archive import archive_times, read_archive
from lakewright.format.archived_timeline import archived_instants
from lakewright.format.file_names import log_order_key, parse_data_file, parse_log_file
from lakewright.format.file_slices import FileSystemView
from lakewright.format.history import HistoryFile, format_manifest, history_files
from lakewright.format.instant import Instant, State, format_instant_name, parse_instant_name
from lakewright.format.instant_times import LOCAL_ZONE, parse_time, time_ms
from lakewright.format.log_block import BlockType, HeaderKey, encode_block
from lakewright.format.partitions import data_files
from lakewright.format.records import ArchivedMetaEntry, CommitMetadata
from lakewright.format.records.definitions import schema_json
from lakewright.format.records.model import encode_body
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.storage.base import ObjectInfo
from lakewright.storage.memory import MemoryStorage
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.json_shapes import change_json
from lakewright.testing.fuzz.judging import Case, Kind, Target, demand, demand_sound
from lakewright.testing.fuzz.log_model import model_log_file
from lakewright.testing.fuzz.mutators import mutate_plainly
from lakewright.testing.fuzz.targets.logs import SHAPES, region_ending

__all__ = ["TARGETS"]

_NAME_CHARS_MAX: Final = 1024
"""Names that an object store takes."""


def _properties(version: int) -> TableProperties:
    layout = "1" if version == 6 else "2"
    return TableProperties(
        {keys.NAME: "t", keys.VERSION: str(version), keys.LAYOUT_VERSION: layout}
    )


_SIX, _EIGHT, _NINE = _properties(6), _properties(8), _properties(9)

# ---- names and listings -------------------------------------------------------------------------

_MADE_NAMES: Final = """20240101000000000.commit
20240101000000000.commit.requested
20240101000000000.inflight
20240101000000000_20240101000001000.commit
20240102000000000.deltacommit.requested
20240102000000000.deltacommit.inflight
20240102000000000_20240102000001000.deltacommit
20240103000000000.compaction.requested
20240103000000000.logcompaction.inflight
20240104000000000.clustering.requested
20240104000000000_20240104000001000.replacecommit
20240105000000000.clean.requested
20240106000000000.savepoint.inflight
20240106000000000_20240106000000001.savepoint
20240107000000000.indexing.requested
20240108000000000.rollback.inflight
20240109000000000001.restore
00000000000000010.deltacommit
20240101000000.commit
hoodie.properties"""
_MADE_FILES: Final = """f1-0_0-1-2_20240101000000000.parquet
f1-0_0-5-9_20240103000000000.parquet
.f1-0_20240102000000000.log.1_0-3-4
.f1-0_20240102000000000.log.2
.f1-0_20240102000000000.log.1_0-3-4.cdc
.f2-0_20240101000000000.log.1_1-0-1
files-0000-0_0-1-2_00000000000000010.hfile
f3-0_1-0-1_20240109000000000.orc
x_1_2_hudiext
.commits_.archive.12_1-0-1
.hoodie_partition_metadata"""


def _name_seeds(corpus: Corpus) -> list[Seed]:
    seeds = [Seed("made:names", f"{_MADE_NAMES}\n--\n{_MADE_FILES}".encode())]
    for table, files in sorted(corpus.tables().items())[:12]:
        instants = [p.rsplit("/", 1)[1] for p in files if p.startswith(".hoodie/")]
        others = [p.rsplit("/", 1)[-1] for p in files if not p.startswith(".hoodie/")]
        listing = "\n".join([*sorted(instants)[:40], "--", *sorted(others)[:40]])
        seeds.append(Seed(f"{table}#names", listing.encode()))
    return seeds


def _check_names(case: Case) -> None:
    before, _, behind = case.data.decode("latin-1").partition("\n--\n")
    instants, files = (_names(part) for part in (before, behind))
    for properties in (_SIX, _EIGHT, _NINE):
        layout = properties.version.layout_version
        parsed = [_check_instant_name(name, layout) for name in instants]
        timeline = Timeline.of(i for i in parsed if i is not None)
        _ask(timeline)
        _check_view(files, timeline, properties)
    for name in files:
        _check_file_name(name)


def _names(text: str) -> list[str]:
    names = (name[:_NAME_CHARS_MAX] for name in text.split("\n"))
    return [name for name in dict.fromkeys(names) if name and "/" not in name]


def _check_instant_name(name: str, layout: int) -> Instant | None:
    parsed = parse_instant_name(name, layout)
    if parsed is None:
        return None
    parse_time(parsed.requested_time, zone=LOCAL_ZONE)
    time_ms(parsed.requested_time, zone=LOCAL_ZONE)
    legacy = layout == 2 and parsed.state is State.COMPLETED and parsed.completion_time is None
    if not legacy:
        again = format_instant_name(
            parsed.requested_time,
            parsed.action,
            parsed.state,
            layout=layout,
            completion_time=parsed.completion_time,
        )
        demand(again == name, f"{name} is written as {again}")
    completion = parsed.completion_time
    if parsed.state is State.COMPLETED and completion is None:
        completion = "20240101000000000"
    return Instant(
        parsed.requested_time, parsed.action, parsed.state, completion, name, legacy=legacy
    )


def _ask(timeline: Timeline) -> None:
    times = [i.requested_time for i in timeline]
    demand(times == sorted(times), "instants are not in order")
    done = timeline.completed()
    demand(len(done) + len(timeline.pending()) == len(timeline), "an instant is neither or both")
    _ = timeline.starts_at, timeline.savepointed_times, timeline.in_completion_order()
    for instant in done.writes():
        time = instant.requested_time
        demand(timeline.contains_completed_or_archived(time), "a completed write is not visible")
    _ = timeline.last_completed_commit(), timeline.completed_in("2", None), timeline.up_to("2024")


def _check_view(files: list[str], timeline: Timeline, properties: TableProperties) -> None:
    infos = [ObjectInfo(f"p/{name}", 10, 1_700_000_000_000) for name in files]
    listed = data_files(infos)
    view = FileSystemView.build(
        {"p": listed},
        timeline=timeline,
        version=properties.version,
        pending_compactions={},
        replaced={},
        completion_time_of=timeline.completion_time_of,
    )
    slices = view.latest_merged_slices(None)
    shown = [s.base.name for s in slices if s.base is not None]
    shown += [log.name for s in slices for log in s.logs]
    demand(len(shown) == len(set(shown)), "a file is in two slices")
    demand(set(shown) <= {f.name for f in listed}, "a slice has a file that is not listed")
    for slice_ in slices:
        order = [log_order_key(log) for log in map(_log_name, slice_.logs)]
        demand(order == sorted(order), "logs are not in merge order")
    _ = view.all_slices(), view.orphans(), view.latest_base_files(None)


def _log_name(log: Any) -> Any:
    parsed = parse_log_file(log.name)
    demand(parsed is not None, "a log file without a log's name")
    return parsed


def _check_file_name(name: str) -> None:
    try:
        parsed = parse_data_file(name)
    except UnsupportedTableError:
        return
    if parsed is not None:
        again = parse_data_file(parsed.text)
        demand(again == parsed, f"{name} is written as {parsed.text}")


def _change_name(data: bytes, random: Random) -> bytes:
    names = data.split(b"\n")
    number = random.randrange(len(names))
    names[number] = mutate_plainly(names[number], random)
    if random.random() < 0.3:
        names.insert(random.randrange(len(names)), random.choice(names))
    return b"\n".join(names)


# ---- listings through a storage, manifests ------------------------------------------------------


def _manifest_seeds(corpus: Corpus) -> list[Seed]:
    made = format_manifest(
        [HistoryFile.of(f"20240101000000000_2024010200000000{n}_{n}.parquet", n) for n in range(3)]
    )
    real = corpus.matching(r"/history/manifest_\d+$", limit=8)
    return [Seed("made:manifest", b"1\n" + made)] + [
        Seed(s.name, s.name.rsplit("_", 1)[1].encode() + b"\n" + s.data) for s in real
    ]


def _check_manifest(case: Case) -> None:
    version, _, manifest = case.data.partition(b"\n")
    storage = MemoryStorage()
    folder = _EIGHT.history_folder
    storage.replace(f"{folder}/_version_", version)
    storage.replace(f"{folder}/manifest_1", manifest)
    for name in _names(version.decode("latin-1")):
        if name.isprintable() and name not in (".", ".."):
            storage.replace(f".hoodie/timeline/{name}", b"")
    load_timeline(storage, _EIGHT)
    for file in history_files(storage, _EIGHT):
        demand(file.level >= 0 and file.first.isdigit() and file.last.isdigit(), "a bad entry")
        file.overlaps("2", "3")


def _change_manifest(data: bytes, random: Random) -> bytes:
    version, end, manifest = data.partition(b"\n")
    return version + end + change_json(manifest, random)


# ---- archives of version 6 ----------------------------------------------------------------------


def _archive_seeds(corpus: Corpus) -> list[Seed]:
    real = corpus.matching(r"/archived/\.commits_\.archive\.\d+[^/]*$", limit=8, bytes_max=60 << 10)
    return [Seed("made:archive", _made_archive()), *real]


def _made_archive() -> bytes:
    text = schema_json("HoodieArchivedMetaEntry", _SIX.version.record_level)
    entries = [
        ArchivedMetaEntry(
            commit_time=f"2024010{n}000000000",
            action_type=["commit", "clean", "deltacommit"][n % 3],
            action_state=State(n % 3).name,
            state_transition_time=f"2024010{n}000000005",
            hoodie_commit_metadata=CommitMetadata(operation_type="UPSERT") if n % 3 else None,
        )
        for n in range(1, 7)
    ]
    blocks = []
    for part in (entries[:3], entries[3:]):
        bodies = [encode_body(entry.to_avro(), text) for entry in part]
        content = struct.pack(">ii", 3, len(bodies))
        content += b"".join(struct.pack(">I", len(body)) + body for body in bodies)
        blocks.append(encode_block(BlockType.AVRO_DATA, {HeaderKey.SCHEMA: text}, content))
    return b"".join(blocks)


def _check_archive(case: Case) -> Kind:
    storage = MemoryStorage()
    storage.replace(f"{_SIX.history_folder}/.commits_.archive.1_1-0-1", case.data)
    times = archive_times(storage, _SIX)
    demand_sound(times)
    entries = read_archive(storage, _SIX)
    told = {e.commit_time for e in entries}
    demand(set(times.column("requested_time").to_pylist()) <= told, "times without entries")
    for instant in archived_instants(storage, _SIX):
        demand(instant.requested_time in told or instant.requested_time == "", "from nowhere")
    return region_ending(model_log_file(case.data), len(case.data))


TARGETS: Final = (
    Target(
        name="names",
        about="names of instants and data files, timelines and file slices of listings",
        seeds=_name_seeds,
        check=_check_names,
        allowed=(FormatError, UnsupportedTableError),
        unplaced=(UnsupportedTableError,),
        tokens=(b".commit", b".log.", b"_", b".inflight", b"2024", b"\n", b".cdc", "٣".encode()),
        shapes=(_change_name, _change_name),
        share=6,
    ),
    Target(
        name="manifest",
        about="manifests of the archived timeline of versions 8 and 9",
        seeds=_manifest_seeds,
        check=_check_manifest,
        path=".hoodie",
        one_file=False,
        tokens=(b'"fileName"', b'"fileLen"', b"null", b"[", b"-1", b"1e999", b"\n", b"\xb2"),
        shapes=(_change_manifest,),
        share=3,
    ),
    Target(
        name="archive",
        about="archived timelines of version 6",
        seeds=_archive_seeds,
        check=_check_archive,
        allowed=(FormatError, UnsupportedTableError),
        path=".hoodie/archived",
        tokens=(b"#HUDI#", b"\x02", b"\x00"),
        shapes=SHAPES,
        share=4,
    ),
)
