"""What becomes of those options of Hudi's that have no field of `WriteOptions`.

Tolerated: options of engines and services that change nothing about the rows and files written here
(tuning of a JVM, of indexes, of metrics, of reads). Each is listed, so that a misspelt name is not
taken for one of them. Refused: options that ask for something that is not done here, unless their
value asks for nothing. Nothing is ignored silently that changes what a table holds.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from lakewright.engine.table_choices import TABLE_OPTIONS
from lakewright.errors import ConfigError

__all__ = ["REFUSED", "nearest_option", "refuse_unusable", "tolerated"]

REFUSED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "hoodie.allow.operation.metadata.field": (("false",), "the operation column is not written"),
    "hoodie.auto.commit": (("true",), "a write commits by itself or not at all"),
    "hoodie.base.file.format": (("parquet",), "base files are Parquet"),
    "hoodie.table.base.file.format": (("parquet",), "base files are Parquet"),
    "hoodie.table.log.file.format": (("hoodie_log",), "log files have one format"),
    "hoodie.table.multiple.base.file.formats.enable": (("false",), "base files are Parquet"),
    "hoodie.table.format": (("native",), "only native tables are written"),
    "hoodie.bootstrap.base.path": ((), "bootstrapped tables are not written"),
    "hoodie.errortable.enable": (("false",), "there is no error table: bad rows fail the write"),
    "hoodie.index.class": ((), "index classes of the JVM cannot be run"),
    "hoodie.instant.time": ((), "instant times are taken under the table's lock"),
    "hoodie.keygen.datetime.parser.class": (
        ("org.apache.hudi.keygen.parser.hoodiedatetimeparser",),
        "parser classes of the JVM cannot be run",
    ),
    "hoodie.metaserver.enabled": (("false",), "the timeline is kept in the table only"),
    "hoodie.precommit.validators": ((), "validator classes of the JVM cannot be run"),
    "hoodie.schema.on.read.enable": (("false",), "the history of columns is not written"),
    "hoodie.datasource.hive_sync.enable": (("false",), "catalogs are not told of writes"),
    "hoodie.datasource.meta.sync.enable": (("false",), "catalogs are not told of writes"),
    "hoodie.datasource.write.slash.separated.date.partitioning": (
        ("false",),
        "tables of these versions do not have it",
    ),
    "hoodie.datasource.write.streaming.ignore.failed.batch": (
        ("false",),
        "a batch that fails is never taken for done",
    ),
    "hoodie.write.ignore.failed": (("false",), "rows that cannot be written fail the write"),
    "hoodie.write.partial.update.schema": ((), "partial updates come from the rows given"),
    "hoodie.write.record.merge.custom.implementation.classes": (
        (),
        "merger classes of the JVM cannot be run",
    ),
}
"""Options that are refused, each with the values (in lower case) that ask for nothing, and why."""

_TOLERATED: Final = """
_hoodie.spark: sql.merge.into.prepped sql.writes.prepped
hoodie.archive: beyond.savepoint block.on.latest.clean.ectr delete.parallelism merge.enable
    merge.files.batch.size merge.small.file.limit.bytes
hoodie.avro: schema schema.validate write.support.class
hoodie.bloom: index.bucketized.checking index.bucketized.checking.enable.dynamic.parallelism
    index.fileid.key.sorting.enable index.input.storage.level index.keys.per.bucket
    index.parallelism index.prune.by.ranges index.update.partition.path index.use.caching
    index.use.treebased.filter
hoodie.bootstrap: data.queries.only full.input.provider index.class index.enable index.type
    mode.selector mode.selector.regex mode.selector.regex.mode parallelism
    partitionpath.translator.class
hoodie.bucket: index.hash.field index.max.num.buckets index.merge.threshold
    index.min.num.buckets index.partition.expressions index.partition.rule.type
    index.query.pruning index.remote.partitioner.enable index.split.threshold
hoodie.bulkinsert: are.partitioner.records.sorted overwrite.operation.type schema.ddl
hoodie.clean: allow.multiple commits.retained delete.bootstrap.base.file fileversions.retained
    hours.retained incremental.enabled max.commits max.commits.to.clean multiple.enabled
    optimize.using.local.engine.context parallelism partition.filter.regex
    partition.filter.selected policy trigger.max.commits trigger.strategy
hoodie.cleaner: commits.retained delete.bootstrap.base.file fileversions.retained hours.retained
    incremental.mode parallelism partition.filter.regex partition.filter.selected policy
hoodie.clustering: async.enabled async.max.commits enable.expirations execution.strategy.class
    expiration.threshold.mins fail.on.pending.ingestion.during.conflict.resolution
    group.read.parallelism inline.max.commits max.parallelism
    plan.generation.use.local.engine.context plan.partition.filter.mode
    plan.strategy.binary.copy.schema.evolution.enable plan.strategy.class
    plan.strategy.cluster.begin.partition plan.strategy.cluster.end.partition
    plan.strategy.daybased.lookback.partitions plan.strategy.daybased.skipfromlatest.partitions
    plan.strategy.earliest.commit.to.cluster plan.strategy.file.slices.sort.by
    plan.strategy.max.bytes.per.group plan.strategy.max.num.groups
    plan.strategy.partition.regex.pattern plan.strategy.partition.selected
    plan.strategy.single.group.clustering.enabled plan.strategy.small.file.limit
    plan.strategy.sort.columns plan.strategy.target.file.max.bytes
    rollback.pending.replacecommit.on.conflict updates.strategy
hoodie.common: diskmap.compression.enabled spillable.diskmap.type
hoodie.compact: inline.max.delta.commits inline.max.delta.seconds inline.trigger.strategy
    merge.handle.class
hoodie.compaction: daybased.target.partitions lazy.block.read logfile.num.threshold
    logfile.size.threshold partition.path.regex plan.generator reverse.log.read strategy
    target.io
hoodie.consistency: check.enabled check.initial_interval_ms check.max_checks
    check.max_interval_ms
hoodie.datasource.clustering: async.enable inline.enable
hoodie.datasource.hive_sync: assume_date_partitioning auto_create_database base_file_format
    batch_num bucket_sync bucket_sync_spec create_managed_table database enable
    filter_pushdown_enabled filter_pushdown_max_size ignore_exceptions jdbcurl metastore.uris
    mode omit_metadata_fields partition_extractor_class partition_fields password
    recreate_table_on_error schema_string_length_thresh serde_properties skip_ro_suffix
    support_timestamp sync_as_datasource sync_comment table table.strategy table_properties
    use_jdbc use_pre_apache_input_format use_spark_catalog username
hoodie.datasource.meta: sync.base.path sync.enable
hoodie.datasource.write: record.merger.impls row.writer.enable secondarykey.column
    streaming.checkpoint.identifier streaming.disable.compaction streaming.retry.count
    streaming.retry.interval.ms
hoodie.deltastreamer: keygen.datetime.parser.class source.kafka.value.deserializer.class
hoodie.embed: timeline.server timeline.server.async timeline.server.gzip timeline.server.port
    timeline.server.reuse.enabled timeline.server.threads
hoodie.errortable: base.path insert.shuffle.parallelism source.rdd.persist target.table.name
    upsert.shuffle.parallelism validate.recordcreation.enable validate.targetschema.enable
    write.class write.failure.strategy write.union.enable
hoodie.expression: index.function index.range.metadata.storage.level index.type
hoodie.file: group.reader.enabled index.cache.spillable.mem index.cache.use.spillable.map
    index.enable listing.parallelism
hoodie.filesystem.operation: retry.enable retry.exceptions retry.initial_interval_ms
    retry.max_interval_ms retry.max_numbers
hoodie.filesystem.view: incr.timeline.sync.enable remote.host remote.port remote.retry.enable
    remote.retry.exceptions remote.retry.initial_interval_ms remote.retry.max_interval_ms
    remote.retry.max_numbers remote.timeout.secs rocksdb.base.path secondary.type
    spillable.bootstrap.base.file.mem.fraction spillable.clustering.mem.fraction
    spillable.compaction.mem.fraction spillable.dir spillable.log.compaction.mem.fraction
    spillable.mem spillable.replaced.mem.fraction type
hoodie.global: index.reconcile.parallelism simple.index.parallelism
hoodie.hfile: block.cache.enabled block.cache.size block.cache.ttl.minutes block.size
    compression.algorithm max.file.size writes.allow.duplicates
hoodie.index.hbase: bucket.number desired_puts_time_in_secs dynamic_qps get.batch.size
    kerberos.user.keytab kerberos.user.principal master.kerberos.principal max.qps.fraction
    max.qps.per.region.server min.qps.fraction put.batch.size put.batch.size.autocompute
    qps.allocator.class qps.fraction regionserver.kerberos.principal rollback.sync
    security.authentication sleep.ms.for.get.batch sleep.ms.for.put.batch table
    zk.connection_timeout_ms zk.session_timeout_ms zknode.path zkpath.qps_root zkport zkquorum
hoodie.keep: max.commits min.commits
hoodie.layout: optimize.build.curve.sample.size optimize.curve.build.method
    optimize.data.skipping.enable optimize.enable optimize.strategy
hoodie.log: compaction.blocks.threshold compaction.enable
hoodie.markers: timeline_server_based.batch.interval_ms timeline_server_based.batch.num_threads
hoodie.memory: compaction.fraction compaction.max.size dfs.buffer.max.size merge.fraction
    merge.max.size spillable.map.path writestatus.failure.fraction
hoodie.merge: data.validation.enabled use.record.positions
hoodie.meta: sync.client.tool.class sync.decode_partition sync.incremental
    sync.metadata_file_listing sync.no_partition_metadata sync.sync_snapshot_with_table_name
    sync.touch.partitions.enabled
hoodie.meta_sync: global.replicate.timestamp spark.version
hoodie.metadata.auto: delete.partitions initialize
hoodie.metadata.bloom: filter.dynamic.max.entries filter.enable filter.fpp filter.num.entries
    filter.type
hoodie.metadata.compact: max.delta.commits max.delta.seconds trigger.strategy
hoodie.metadata.global: record.level.index.max.filegroup.count
    record.level.index.min.filegroup.count
hoodie.metadata.index: async bloom.filter.column.list bloom.filter.enable
    bloom.filter.file.group.count bloom.filter.parallelism check.timeout.seconds
    column.stats.column.list column.stats.enable column.stats.file.group.count
    column.stats.max.columns.to.index column.stats.parallelism
    column.stats.processing.mode.override drop expression.column expression.enable
    expression.file.group.count expression.options expression.parallelism partition.stats.enable
    partition.stats.file.group.count partition.stats.parallelism secondary.column
    secondary.enable secondary.parallelism
hoodie.metadata.log: compaction.blocks.threshold compaction.enable
hoodie.metadata.max: deltacommits.when_pending init.parallelism logfile.size reader.buffer.size
    reader.memory
hoodie.metadata.partitioned: record.index.max.filegroup.count record.index.min.filegroup.count
hoodie.metadata.range: repartition.random.seed repartition.sampling.fraction
    repartition.target.records.per.partition
hoodie.metadata.record: index.enable index.enable.validation.on.initialization
    index.growth.factor index.max.filegroup.count index.max.filegroup.size
    index.min.filegroup.count level.index.defer.init
    level.index.max.filegroup.count level.index.min.filegroup.count preparation.parallelism
hoodie.metadata.repartition: default.partitions min.partitions.threshold
hoodie.metadata.streaming: write.datatable.write.statuses.coalesce.divisor write.enabled
hoodie.metadata.table: service.manager.actions service.manager.enabled
hoodie.metadata.write: concurrency.mode fail.on.table.service.failures
hoodie.metaserver: connect.retries connect.retry.delay uris
hoodie.metrics: cloudwatch datadog graphite jmx m3 on prometheus pushgateway
hoodie.metrics.cloudwatch: metric.prefix namespace report.period.seconds
hoodie.metrics.datadog: api.key api.key.skip.validation api.key.supplier api.site
    api.timeout.seconds metric.host metric.prefix metric.tags report.period.seconds
hoodie.metrics.graphite: host metric.prefix port report.period.seconds
hoodie.metrics.jmx: host port
hoodie.metrics.m3: env host port service tags
hoodie.metrics.pushgateway: delete.on.shutdown host job.name port random.job.name.suffix
    report.labels report.period.seconds
hoodie.metrics.reporter: class metricsname.prefix type
hoodie.orc: block.size compression.codec max.file.size stripe.size
hoodie.parquet: field_id.write.enabled flink.rowdata.write.support.class outputtimestamptype
    spark.row.write.support.class write.config.injector.class write.utc-timezone.enabled
    writelegacyformat.enabled
hoodie.partition: ttl.inline ttl.management.strategy.type ttl.strategy.class
    ttl.strategy.days.retain ttl.strategy.max.delete.partitions ttl.strategy.partition.selected
hoodie.payload: delete.field delete.marker event.time.field
hoodie.precommit: validators.equality.sql.queries validators.failure.policy
    validators.inequality.sql.queries validators.single.value.sql.queries
    validators.streaming.offset.tolerance.percentage
hoodie.prewrite: cleaner.policy validators
hoodie.read: blob.inline.mode timeline.holes.resolution.policy
hoodie.record: index.input.storage.level index.update.partition.path index.use.caching
    size.estimator.class
hoodie.rollback: avoid.duplicate.plan instant.backup.dir instant.backup.enabled
hoodie.simple: index.input.storage.level index.parallelism index.update.partition.path
    index.use.caching
hoodie.spark: polaris.catalog.class sql.insert.into.operation sql.merge.into.partial.updates
    sql.optimized.writes.enable
hoodie.sql: bulk.insert.enable insert.mode
hoodie.storage: class layout.partitioner.class layout.type
hoodie.streamer: schemaprovider.class source.kafka.value.deserializer.class
hoodie.table: service.manager.actions service.manager.connection.retries
    service.manager.connection.retry.delay.sec service.manager.connection.timeout.sec
    service.manager.deploy.extra.params service.manager.deploy.parallelism
    service.manager.deploy.queue service.manager.deploy.resources
    service.manager.deploy.username service.manager.enabled service.manager.execution.engine
    service.manager.uris services.incremental.enabled
hoodie.timeline: compaction.batch.size compaction.target.file.max.bytes
    manifest.retained.versions
hoodie.write.buffer: limit.bytes record.cache.limit record.sampling.rate
hoodie.write.concurrency: async.conflict.detector.initial_delay_ms
    async.conflict.detector.period_ms early.conflict.check.commit.conflict
    early.conflict.detection.enable early.conflict.detection.strategy
    schema.conflict.resolution.enable
hoodie.write.executor: disruptor.buffer.limit.bytes disruptor.wait.strategy type
hoodie.write.merge: handle.class handle.fallback
hoodie.write.rolling: metadata.keys metadata.timeline.lookback.commits
: _.hoodie.allow.multi.write.on.same.instant _hoodie.hfile.use.native.reader
    _hoodie.metadata.ignore.spurious.deletes _hoodie.optimistic.consistency.guard.enable
    _hoodie.time.generator.reuse.enable _hoodie.writes.fileid.encoding
    hoodie.assume.date.partitioning hoodie.auto.adjust.lock.configs hoodie.base.path
    hoodie.block.writes.on.speculative.execution
    hoodie.cdc.file.group.iterator.memory.spill.bytes hoodie.client.init.callback.classes
    hoodie.commits.archival.batch hoodie.datasource.merge.type
    hoodie.datasource.meta_sync.condition.sync
    hoodie.datasource.partition_extractor_class hoodie.enable.data.skipping
    hoodie.fail.on.timeline.archiving hoodie.fileid.prefix.provider.class
    hoodie.filesystem.remote.backup.view.enable hoodie.fs.atomic_creation.support
    hoodie.hbase.index.update.partition.path hoodie.index.bucket.engine hoodie.index.name
    hoodie.internal.schema hoodie.io.factory.class
    hoodie.metadata.derive.from.datatable.clean.policy hoodie.metadata.dir.filter.regex
    hoodie.metadata.fallback.enable hoodie.metadata.file.cache.max.size.mb
    hoodie.metadata.metrics.enable hoodie.metadata.optimized.log.blocks.scan.enable
    hoodie.metadata.spillable.map.path hoodie.metrics hoodie.metrics.configs.properties
    hoodie.metrics.executor.enable hoodie.metrics.lock.enable hoodie.metrics.prometheus.port
    hoodie.metricscompaction.log.blocks.on hoodie.optimistic.consistency.guard.sleep_time_ms
    hoodie.optimized.log.blocks.scan.enable hoodie.post.commit.failures.ignored
    hoodie.query.as.ro.table hoodie.release.resource.on.completion.enable
    hoodie.schema.cache.enable hoodie.sensitive.config.keys
    hoodie.skip.default.partition.validation hoodie.time.generator.type
    hoodie.write.application.id hoodie.write.auto.upgrade
    hoodie.write.complex.keygen.validation.enable hoodie.write.concat.handle.class
    hoodie.write.empty.clean.interval.hours hoodie.write.markers.type
    hoodie.write.partial.update.unavailable.value hoodie.write.record.positions
    hoodie.write.schema hoodie.write.status.storage.level
    hoodie.write.tagged.record.storage.level hoodie.write.track.event.time.watermark
    hoodie.writestatus.class
"""
"""One group a paragraph: what the names have in common, a colon, how they go on."""


def _names(text: str) -> frozenset[str]:
    found = set()
    prefix = ""
    for word in text.split():
        if word.endswith(":"):
            prefix = f"{word[:-1]}." if word != ":" else ""
        else:
            found.add(prefix + word)
    return frozenset(found)


_TOLERATED_NAMES: Final = _names(_TOLERATED)


def tolerated(option: str) -> bool:
    """Whether an option of Hudi's is accepted without a field of its own."""
    return option in _TOLERATED_NAMES or option in REFUSED


def refuse_unusable(options: Mapping[str, str]) -> None:
    """Raise `ConfigError` for an option that asks for what is not done here."""
    for option, (harmless, why) in REFUSED.items():
        value = options.get(option, "").strip()
        if value and value.lower() not in harmless:
            raise ConfigError(
                f"{option}={value} cannot be honoured: {why}.",
                hint="Leave the option out, or write with Hudi.",
                context={"option": option, "value": value},
            )


def nearest_option(option: str, own: Iterable[str]) -> str | None:
    """The known option that a misspelt one probably means."""
    spelled = [name for key, others in TABLE_OPTIONS.items() for name in (key, *others)]
    known = [*own, *spelled, *sorted(_TOLERATED_NAMES), *REFUSED]
    near = difflib.get_close_matches(option, known, n=1, cutoff=0.75)
    return near[0] if near else None
