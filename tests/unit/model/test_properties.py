"""Properties: what is known, how values are read, defaults, validation, edits."""

from __future__ import annotations

import pickle
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import PropertiesInvalid
from sleeper.model.known_properties.catalogue import (
    INSTANCE_PROPERTIES,
    INSTANCE_PROPERTIES_BY_NAME,
    KNOWN_INSTANCE_PROPERTIES,
    TABLE_PROPERTIES,
    TABLE_PROPERTIES_BY_NAME,
)
from sleeper.model.known_properties.checks import (
    check_editable,
    validate_instance_properties,
    validate_table_properties,
)
from sleeper.model.known_properties.given import is_known
from sleeper.model.known_properties.typed import InstanceProperties, TableProperties
from sleeper.model.known_properties.value_kinds import BYTE_SIZE, LIST
from sleeper.model.processing import AgeOff
from sleeper.model.schema import Field, Primitive, Schema

SCHEMA = Schema(row_keys=[Field("id", Primitive.STRING)], values=[Field("n", Primitive.LONG)])
NAMED = {"sleeper.table.name": "trades"}
BY_NAME = {known.name: known for known in (*TABLE_PROPERTIES, *KNOWN_INSTANCE_PROPERTIES)}
TABLE_GROUPS = (
    *("definition", "parquet", "query", "splitting", "gc", "compaction", "statestore"),
    *("ingest", "batcher", "bulk_import", "async_commits"),
)
INSTANCE_GROUPS = ("general", "commits", "splitting", "gc")

# Upstream's defaults, where our default is upstream's. Others are in OUR_DEFAULTS.
UPSTREAM_DEFAULTS = {
    "online": "true",
    "data.engine": "DATAFUSION",
    "splits.base64.encoded": "false",
    "partition.splitting.threshold": "1000000000",
    "partition.splitting.min.rows": "1000",
    "partition.splitting.min.distribution.percent": "10",
    "partition.splitting.commit.async": "true",
    "parquet.rowgroup.size": "8388608",
    "parquet.page.size": "131072",
    "parquet.columnindex.truncate.length": "128",
    "parquet.statistics.truncate.length": "2147483647",
    "parquet.writer.version": "v2",
    "query.parquet.column.index.enabled": "false",
    "datafusion.s3.readahead.enabled": "true",
    "gc.delay.minutes": "15",
    "gc.commit.async": "true",
    "retain.after.removal": "true",
    "reuse.existing": "false",
    "compaction.strategy.class": "SizeRatioCompactionStrategy",
    "compaction.files.batch.size": "12",
    "compaction.job.creation.limit": "100000",
    "compaction.job.send.batch.size": "1000",
    "compaction.job.send.timeout.seconds": "90",
    "compaction.job.send.retry.delay.seconds": "30",
    "compaction.job.id.assignment.commit.async": "true",
    "compaction.job.commit.async": "true",
    "compaction.job.async.commit.batching": "true",
    "compaction.strategy.sizeratio.ratio": "3",
    "compaction.strategy.sizeratio.max.concurrent.jobs.per.partition": "2147483647",
    "statestore.committer.update.every.commit": "false",
    "statestore.committer.update.every.batch": "true",
    "statestore.transactionlog.add.transaction.max.attempts": "10",
    "statestore.transactionlog.add.transaction.first.retry.wait.ceiling.ms": "200",
    "statestore.transactionlog.add.transaction.max.retry.wait.ceiling.ms": "30000",
    "statestore.transactionlog.files.snapshot.batch.size": "1000",
    "statestore.transactionlog.partitions.snapshot.batch.size": "1000",
    "statestore.transactionlog.time.between.snapshot.checks.seconds": "60",
    "statestore.transactionlog.time.between.transaction.checks.ms": "0",
    "statestore.transactionlog.snapshot.load.min.transactions.ahead": "10",
    "statestore.transactionlog.snapshot.expiry.days": "2",
    "statestore.transactionlog.delete.behind.snapshot.min.age.minutes": "2",
    "statestore.transactionlog.delete.number.behind.latest.snapshot": "200",
    "ingest.row.batch.type": "arrow",
    "ingest.job.files.commit.async": "true",
    "ingest.batcher.job.min.size": "1G",
    "ingest.batcher.job.max.size": "5G",
    "ingest.batcher.job.min.files": "1",
    "ingest.batcher.job.max.files": "100",
    "ingest.batcher.file.max.age.seconds": "300",
    "ingest.batcher.ingest.queue": "bulk_import_emr_serverless",
    "ingest.batcher.file.tracking.ttl.minutes": "10080",
    "bulk.import.min.leaf.partitions": "256",
    "bulk.import.partition.splitting.attempts": "3",
    "bulk.import.job.files.commit.async": "true",
    "bulk.import.emr.instance.architecture": "arm64",
    "query.processor.cache.timeout.seconds": "60",
}
WITHOUT_DEFAULT = (
    *("name", "id", "schema", "iterator.class.name", "iterator.config"),
    *("filters", "aggregations", "function"),
    *(
        "parquet.compression.codec",
        "parquet.dictionary.encoding.rowkey.fields",
        "parquet.dictionary.encoding.sortkey.fields",
        "parquet.dictionary.encoding.value.fields",
        "splits.file",
        "fs.s3a.readahead.range",
        "statestore.commit.async.enabled",
    ),
)
OUR_DEFAULTS = {
    "bulk.import.emr.release.label": "emr-spark-8.0.0",
    "statestore.classname": "TransactionLogStateStore",
    "ingest.file.writing.strategy": "by_size",
    "ingest.partition.file.writer.type": "direct",
    "parquet.page.rows": "1000",
    "parquet.rowgroup.rows.max": "32768",
    "ingest.memory": "1G",
    "job.id.retention.days": "30",
}


def table(instance: dict[str, str] | None = None, **values: str) -> TableProperties:
    """Return properties from names with underscores in place of dots, without their prefix."""
    ours = {"sleeper.table." + name.replace("_", "."): text for name, text in values.items()}
    return TableProperties(ours, InstanceProperties(instance or {}))


def failures(values: dict[str, str], schema: Schema = SCHEMA) -> dict[str, str]:
    with pytest.raises(PropertiesInvalid) as refused:
        validate_table_properties({**NAMED, **values}, schema)
    return refused.value.failures


def test_iterators_in_java_are_refused():
    """PRC-6, PRC-7: rows that they were to change or drop would be read unchanged, in silence."""
    name = "sleeper.table.iterator.class.name"

    refusal = failures({name: "sleeper.core.iterator.impl.AgeOffIterator"})[name]

    assert "do not run here" in refusal
    assert "sleeper.table.function" in refusal


class TestKnownProperties:
    """The list that the reference page is made from."""

    @pytest.mark.parametrize(("name", "default"), UPSTREAM_DEFAULTS.items())
    def test_has_upstreams_defaults(self, name, default):
        """Under upstream's names, exactly."""
        assert BY_NAME[f"sleeper.table.{name}"].default == default

    @pytest.mark.parametrize(("name", "default"), OUR_DEFAULTS.items())
    def test_has_defaults_of_our_own(self, name, default):
        """Where the design differs, or where the property is ours."""
        assert BY_NAME[f"sleeper.table.{name}"].default == default

    @pytest.mark.parametrize("name", WITHOUT_DEFAULT)
    def test_some_have_no_default(self, name):
        """Unset means none, or follows from others."""
        assert BY_NAME[f"sleeper.table.{name}"].default is None

    def test_ours_are_marked(self):
        """Everything else is upstream's."""
        ours = {known.name for known in BY_NAME.values() if known.since == "ours"}

        assert {name for name in ours if not name.startswith("sleeper.default.")} == {
            "sleeper.access.logs.bucket",
            "sleeper.alarms.look.period.minutes",
            "sleeper.alarms.running.tasks",
            "sleeper.alarms.topic.arn",
            "sleeper.budget.usd.per.month",
            "sleeper.bulk.import.environment",
            "sleeper.bulk.import.local.spark.master",
            "sleeper.clock.skew.max.minutes",
            "sleeper.deploy.alarm.message.age.minutes",
            "sleeper.deploy.deletion.protection",
            "sleeper.deploy.in.vpc",
            "sleeper.deploy.old.versions.days",
            "sleeper.deploy.permissions.boundary",
            "sleeper.deploy.table.metrics.period.minutes",
            "sleeper.fargate.public.ip",
            "sleeper.fargate.spot",
            "sleeper.format.version",
            "sleeper.image.functions",
            "sleeper.image.tasks",
            "sleeper.ingest.task.cpu.architecture",
            "sleeper.jobs.called.queues",
            "sleeper.jobs.input.places",
            "sleeper.jobs.receives.max",
            "sleeper.jobs.retry.first.seconds",
            "sleeper.jobs.retry.max.seconds",
            "sleeper.jobs.url",
            "sleeper.kms.key.arn",
            "sleeper.lambda.cpu.architecture",
            "sleeper.lambda.reserves.concurrency",
            "sleeper.properties.version",
            "sleeper.query.queue.visibility.timeout.seconds",
            "sleeper.statestore.commit.read.back",
            "sleeper.statestore.committer.queue.visibility.timeout.seconds",
            "sleeper.table.parquet.page.rows",
            "sleeper.table.parquet.bloom.filter",
            "sleeper.table.function",
            "sleeper.table.sums.too.large",
            "sleeper.table.ingest.memory",
            "sleeper.table.job.id.retention.days",
            "sleeper.table.publish.after.commits",
            "sleeper.table.publish.formats",
            "sleeper.table.publish.kept.minutes",
            "sleeper.table.gc.orphan.age.minutes",
            "sleeper.table.partition.merging.threshold",
            "sleeper.table.versions.kept.minutes",
            "sleeper.table.statestore.s3.revisions.kept.min",
            "sleeper.table.statestore.s3.revisions.kept.minutes",
            "sleeper.table.compaction.job.lease.minutes",
            "sleeper.table.statestore.move",
        }

    @pytest.mark.parametrize(
        ("name", "default"),
        [
            ("sleeper.id", None),
            ("sleeper.statestore.provider.cache.size", "10"),
            ("sleeper.ingest.max.local.rows", "100000000"),
            ("sleeper.compaction.job.commit.batch.size", "1000"),
            ("sleeper.partition.splitting.files.maximum", "50"),
            ("sleeper.gc.batch.size", "10000"),
            ("sleeper.gc.files.maximum", "750000"),
            ("sleeper.run.gc.offline", "false"),
            ("sleeper.default.table.gc.delay.minutes", "15"),
            ("sleeper.default.table.statestore.commit.async.behaviour", "PER_IMPLEMENTATION"),
            ("sleeper.query.tracker.ttl.days", "1"),
            ("sleeper.default.query.results.page.size", "131072"),
        ],
    )
    def test_knows_the_instance_too(self, name, default):
        """A sample of upstream's list."""
        assert BY_NAME[name].default == default

    def test_every_default_is_a_value_of_its_kind(self):
        """A wrong one would only be noticed by the user who relies on it."""
        for known in BY_NAME.values():
            if known.default is not None:
                known.parse(known.default)

        assert len(BY_NAME) == len(TABLE_PROPERTIES) + len(KNOWN_INSTANCE_PROPERTIES)

    def test_each_is_described_and_grouped(self):
        """One sentence each, and each group's properties stand together."""
        for listed in (TABLE_PROPERTIES, INSTANCE_PROPERTIES):
            groups = [known.group for known in listed]
            starts = [g for g, before in zip(groups, [None, *groups], strict=False) if g != before]

            assert all(groups)
            assert len(starts) == len(set(starts))
            assert [known.name for known in listed if not known.description.endswith(".")] == []

    def test_what_a_table_is_has_no_instance_default(self):
        """Neither name, id and schema nor filters; all the rest have one (INS-8)."""
        without = {known.name for known in TABLE_PROPERTIES if known.instance_default is None}
        definition = {known.name for known in TABLE_PROPERTIES if known.group == "Definition"}

        assert without == {*definition, "sleeper.table.statestore.commit.async.enabled"}


class TestKinds:
    """How texts become values (INS-6, INS-7, INS-9)."""

    @pytest.mark.parametrize(
        ("text", "size_bytes"),
        [
            ("0", 0),
            ("1024", 1024),
            ("1K", 1024),
            ("32M", 32 * 1024**2),
            ("1G", 1024**3),
            ("2t", 2 * 1024**4),
            ("3P", 3 * 1024**5),
            ("7E", 7 * 1024**6),
        ],
    )
    def test_byte_sizes_are_binary(self, text, size_bytes):
        """1K is 1024 (INS-7)."""
        assert BYTE_SIZE.parse(text) == size_bytes

    @pytest.mark.parametrize("text", ["", "K", "1KB", "1.5G", "-1", "1 G", "8E", "\u0661", "1_000"])
    def test_other_byte_sizes_are_refused(self, text):
        """Also what 64 bits do not hold."""
        with pytest.raises(ValueError):
            BYTE_SIZE.parse(text)

    @given(st.lists(st.text("abc-", min_size=1)), st.sampled_from([",", " , ", ",  "]))
    def test_lists_are_separated_by_commas(self, items, comma):
        """With or without spaces (INS-9)."""
        assert LIST.parse(comma.join(items)) == tuple(items)

    @pytest.mark.parametrize(
        ("name", "allowed", "refused"),
        [
            ("sleeper.table.compaction.files.batch.size", ("1", "2147483647"), ("0", "-1", "x")),
            ("sleeper.table.gc.delay.minutes", ("1", "15"), ("0", "-1", "1.5", "2147483648")),
            ("sleeper.table.gc.orphan.age.minutes", ("60", "4320"), ("0", "59")),
            ("sleeper.table.partition.splitting.threshold", ("5000000000",), ("0", "1e9")),
            ("sleeper.table.online", ("true", "FALSE", "True"), ("yes", "1")),
            ("sleeper.table.parquet.compression.codec", ("ZSTD", "snappy"), ("lzo", "zip")),
            ("sleeper.table.parquet.writer.version", ("v1", "V2"), ("1", "v3")),
            ("sleeper.table.ingest.batcher.job.max.size", ("5G", "100"), ("5GB", "big")),
            ("sleeper.statestore.provider.cache.size", ("-1", "10"), ("x", "1.0")),
            ("sleeper.statestore.committer.batch.size", ("1", "10"), ("0", "11")),
            ("sleeper.statestore.committer.platform", ("lambda", "EC2"), ("ECS",)),
            ("sleeper.ingest.job.queue.wait.time", ("0", "20"), ("21", "-1")),
            ("sleeper.ingest.batcher.submitter.timeout.seconds", ("1", "900"), ("0", "901")),
            ("sleeper.ingest.async.crt.target.throughput.gbps", ("10", "0.5"), ("fast", "nan")),
            ("sleeper.log.retention.days", ("-1", "1827"), ("2", "0")),
            ("sleeper.optional.stacks", ("ingeststack, QueryStack",), ("IngestStack,Other",)),
            ("sleeper.tags", ("a,1,b,2",), ("a,1,b",)),
            ("sleeper.id", ("x" * 20,), ("x" * 21,)),
        ],
    )
    def test_each_property_has_its_kind(self, name, allowed, refused):
        """The failure names the property and the value, and says what is wanted (INS-6)."""
        for text in allowed:
            BY_NAME[name].parse(text)
        for text in refused:
            with pytest.raises(PropertiesInvalid) as failure:
                BY_NAME[name].parse(text)
            assert str(failure.value).startswith(f"{name} is {text!r}, but it must be ")
            assert failure.value.failures.keys() == {name}

    @pytest.mark.parametrize(
        ("text", "simple"),
        [
            ("basiccompactionstrategy", "BasicCompactionStrategy"),
            ("sleeper.some.package.BasicCompactionStrategy", "BasicCompactionStrategy"),
        ],
    )
    def test_classes_are_known_without_their_package(self, text, simple):
        """Only the simple name counts (STS-25)."""
        assert table(compaction_strategy_class=text).compaction.strategy == simple


class TestTypedGroups:
    """What the rest of the code reads."""

    def test_values_have_their_types(self):
        """`properties.parquet.page_rows` is a number; nobody sees a name or a text."""
        properties = table(
            parquet_page_rows="4000",
            parquet_rowgroup_size="16M",
            parquet_dictionary_encoding_value_fields="TRUE",
            parquet_compression_codec="Snappy",
        )

        assert properties.parquet.page_rows == 4000
        assert properties.parquet.row_group_bytes == 16 * 1024**2
        assert properties.parquet.dictionary_values is True
        assert properties.parquet.compression == "snappy"

    @pytest.mark.parametrize("group", [group for group in TABLE_GROUPS if group != "async_commits"])
    def test_a_table_needs_no_values(self, group):
        """Every group has defaults, the same that the list shows; a switch decides commits."""
        values = getattr(TableProperties(), group)

        for item in fields(values):
            known = item.metadata["property"]
            default = None if known.default is None else known.parse(known.default)
            assert getattr(values, item.name) == default

    @pytest.mark.parametrize("group", INSTANCE_GROUPS)
    def test_an_instance_needs_no_values(self, group):
        """The same for the instance's groups."""
        values = getattr(InstanceProperties(), group)

        for item in fields(values):
            known = item.metadata["property"]
            default = None if known.default is None else known.parse(known.default)
            assert getattr(values, item.name) == default

    def test_no_property_is_in_two_groups(self):
        """A group's field is the one place where a property is written."""
        named = [
            item.metadata["property"].name
            for properties, groups in (
                (TableProperties(), TABLE_GROUPS),
                (InstanceProperties(), INSTANCE_GROUPS),
            )
            for group in groups
            for item in fields(getattr(properties, group))
        ]

        assert sorted(named) == sorted(set(named))
        assert set(named) <= set(BY_NAME)

    def test_a_stored_value_that_older_versions_allowed_counts_as_the_least(self):
        """A delay of 0 minutes was allowed once: such a table still opens, and is safe."""
        stored = table(gc_delay_minutes="0", gc_orphan_age_minutes="5").gc

        assert (stored.delay_minutes, stored.orphan_age_minutes) == (1, 60)

    def test_a_wrong_value_spoils_only_its_group(self):
        """A table with a wrong property can still be read, and deleted (TBL-4)."""
        properties = table(parquet_page_rows="many", parquet_page_size="big")

        assert properties.gc.delay_minutes == 15
        with pytest.raises(PropertiesInvalid, match=r"Failure 1 of 2\.") as refused:
            _ = properties.parquet
        assert list(refused.value.failures) == [
            "sleeper.table.parquet.page.size",
            "sleeper.table.parquet.page.rows",
        ]

    def test_properties_can_be_sent_to_another_process(self):
        """Handles are picklable, and so is what hangs on them."""
        properties = table(parquet_page_rows="7")
        read_once = properties.parquet

        assert pickle.loads(pickle.dumps(properties)) == properties
        assert pickle.loads(pickle.dumps(properties)).parquet == read_once

    def test_processing_comes_from_two_properties(self):
        """With the schema it must fit."""
        assert table(filters="ageOff(n,5)").processing(SCHEMA).filters == (AgeOff("n", 5),)

    def test_the_instance_has_its_id(self):
        """Nothing where it was never named."""
        assert InstanceProperties({"sleeper.id": "demo"}).id == "demo"
        assert InstanceProperties().id == ""


class TestDefaults:
    """The table's own value, else the instance's default, else the built-in one (INS-8)."""

    def test_the_tables_own_value_comes_first(self):
        """Before the instance's default."""
        instance = {"sleeper.default.table.gc.delay.minutes": "30"}

        assert table(instance, gc_delay_minutes="5").gc.delay_minutes == 5

    def test_the_instances_default_comes_next(self):
        """Before the built-in one."""
        instance = {"sleeper.default.table.gc.delay.minutes": "30"}

        assert table(instance).gc.delay_minutes == 30
        assert table().gc.delay_minutes == 15

    def test_an_empty_value_is_none(self):
        """So a line `name=` in a file leaves the default as it is."""
        instance = {"sleeper.default.table.gc.delay.minutes": " "}

        assert table(instance, gc_delay_minutes="").gc.delay_minutes == 15

    def test_any_known_property_has_the_same_chain(self):
        """Also those without a typed view, as text."""
        instance = {"sleeper.default.table.ingest.row.batch.type": "arraylist"}

        assert table(instance).text("sleeper.table.ingest.row.batch.type") == "arraylist"
        assert table().text("sleeper.table.ingest.row.batch.type") == "arrow"
        assert table().text("sleeper.table.name") is None
        assert table(other="x").text("sleeper.table.other") == "x"

    def test_a_tables_definition_has_no_default(self):
        """An instance cannot give all tables one filter."""
        instance = {"sleeper.default.table.filters": "ageOff(n,5)"}

        assert table(instance).definition.filters is None

    def test_a_wrong_default_is_told_under_its_own_name(self):
        """The user mends the instance, not the table."""
        instance = {"sleeper.default.table.gc.delay.minutes": "soon"}

        with pytest.raises(PropertiesInvalid, match=r"^sleeper.default.table.gc.delay.minutes is"):
            _ = table(instance).gc

    def test_the_instance_has_built_in_defaults(self):
        """As text too."""
        instance = InstanceProperties({"sleeper.gc.batch.size": "7"})

        assert instance.text("sleeper.gc.batch.size") == "7"
        assert instance.text("sleeper.gc.files.maximum") == "750000"
        assert instance.text("sleeper.default.table.gc.delay.minutes") == "15"
        assert instance.text("sleeper.other") is None


class TestAsyncCommits:
    """Which commits go through a committer (INS-8)."""

    FLAG = "gc_commit_async"
    SWITCH = "statestore_commit_async_enabled"

    @pytest.mark.parametrize(
        ("flag", "switch", "result"),
        [
            (None, None, False),
            (None, "true", True),
            (None, "false", False),
            ("true", None, True),
            ("false", None, False),
            ("true", "true", True),
            ("true", "false", False),
            ("false", "true", False),
            ("false", "false", False),
        ],
    )
    def test_flag_and_switch_of_the_table(self, flag, switch, result):
        """Set together, both must be true; set alone, each decides."""
        given_values = {self.FLAG: flag, self.SWITCH: switch}
        values = {name: text for name, text in given_values.items() if text}

        assert table(**values).async_commits.garbage is result

    @pytest.mark.parametrize(
        ("behaviour", "store", "result"),
        [
            ("PER_IMPLEMENTATION", "TransactionLogStateStore", False),
            ("PER_IMPLEMENTATION", "DynamoDBTransactionLogStateStore", False),
            ("PER_IMPLEMENTATION", "S3StateStore", False),
            ("DISABLED", "TransactionLogStateStore", False),
            ("ALL_IMPLEMENTATIONS", "S3StateStore", True),
        ],
    )
    def test_the_instance_decides_where_nothing_is_set(self, behaviour, store, result):
        """Our stores commit by themselves unless somebody says otherwise."""
        instance = {"sleeper.default.table.statestore.commit.async.behaviour": behaviour}

        assert table(instance, statestore_classname=store).async_commits.garbage is result

    def test_a_flag_alone_counts_even_where_the_store_says_no(self):
        """As upstream has it."""
        properties = table(statestore_classname="S3StateStore", gc_commit_async="true")

        assert properties.async_commits.garbage
        assert not properties.async_commits.ingest

    def test_the_instances_default_counts_with_the_switch(self):
        """Off at the instance is off."""
        instance = {"sleeper.default.table.gc.commit.async": "false"}

        assert not table(instance, **{self.SWITCH: "true"}).async_commits.garbage


class TestValidation:
    """All properties are checked together (INS-6)."""

    def test_right_values_pass(self):
        """Nothing is raised, also for names that nobody knows."""
        values = {
            **NAMED,
            "sleeper.table.schema": SCHEMA.to_json(),
            "sleeper.table.aggregations": "sum(n)",
            "sleeper.table.from.the.future": "?",
            "sleeper.table.gc.delay.minutes": "",
        }

        assert validate_table_properties(values, SCHEMA) is None

    def test_every_failure_is_told(self):
        """The message has the first, in the order of the list, and their number."""
        found = {
            "sleeper.table.gc.delay.minutes": "soon",
            "sleeper.table.parquet.page.rows": "0",
            "sleeper.table.aggregations": "sum(x)",
        }

        with pytest.raises(PropertiesInvalid) as refused:
            validate_table_properties({**NAMED, **found}, SCHEMA)

        assert list(refused.value.failures) == [
            "sleeper.table.aggregations",
            "sleeper.table.parquet.page.rows",
            "sleeper.table.gc.delay.minutes",
        ]
        assert str(refused.value).startswith("sleeper.table.aggregations is 'sum(x)': Not all")
        assert str(refused.value).endswith(" Failure 1 of 3.")

    def test_one_failure_is_not_counted(self):
        """Property, value, what is wanted."""
        with pytest.raises(PropertiesInvalid) as refused:
            validate_table_properties({**NAMED, "sleeper.table.online": "maybe"}, SCHEMA)

        assert str(refused.value) == (
            "sleeper.table.online is 'maybe', but it must be true or false."
        )

    def test_a_table_needs_a_name(self):
        """It has no default (TBL-1)."""
        with pytest.raises(PropertiesInvalid, match=r"sleeper\.table\.name is not set"):
            validate_table_properties({}, SCHEMA)

    @pytest.mark.parametrize("text", ["{", "{}", '{"rowKeyFields": []}'])
    def test_a_schema_must_be_readable(self, text):
        """It must parse."""
        assert list(failures({"sleeper.table.schema": text})) == ["sleeper.table.schema"]

    def test_an_instance_needs_an_id(self):
        """Of at most 20 characters (INS-1)."""
        assert validate_instance_properties({"sleeper.id": "demo"}) is None
        with pytest.raises(PropertiesInvalid, match=r"sleeper\.id is not set"):
            validate_instance_properties({"sleeper.id": " "})
        with pytest.raises(PropertiesInvalid, match="at most 20 characters"):
            validate_instance_properties({"sleeper.id": "x" * 21})

    def test_an_instances_defaults_are_checked_as_the_tables_values(self):
        """By the kind of the table's property."""
        with pytest.raises(PropertiesInvalid) as refused:
            validate_instance_properties(
                {"sleeper.id": "demo", "sleeper.default.table.gc.delay.minutes": "soon"}
            )

        assert list(refused.value.failures) == ["sleeper.default.table.gc.delay.minutes"]


def unknown(values, known):
    return [name for name in sorted(values) if not is_known(name, known)]


class TestUnknownProperties:
    """Kept and reported, never refused (rule INS-5)."""

    def test_are_named(self):
        """Sorted, for a table and for an instance."""
        values = {"sleeper.table.x": "1", "sleeper.id": "1", "sleeper.table.name": "t", "a": "1"}

        assert unknown(values, TABLE_PROPERTIES_BY_NAME) == ["a", "sleeper.id", "sleeper.table.x"]
        assert unknown(values, INSTANCE_PROPERTIES_BY_NAME) == [
            *("a", "sleeper.table.name", "sleeper.table.x")
        ]

    def test_defaults_for_tables_are_known(self):
        """Under their names at the instance."""
        values = {"sleeper.default.table.parquet.page.rows": "1", "sleeper.default.table.name": "t"}

        assert unknown(values, INSTANCE_PROPERTIES_BY_NAME) == ["sleeper.default.table.name"]


class TestEdits:
    """What an edit may not touch."""

    @pytest.mark.parametrize(
        ("name", "advice"),
        [
            ("sleeper.table.name", "Rename the table instead."),
            ("sleeper.table.id", "fixed when it was made"),
            ("sleeper.table.schema", "Make a new table"),
            ("sleeper.id", "fixed when it was made: make another instance"),
            ("sleeper.format.version", "Sleeper sets it"),
            ("sleeper.properties.version", "Sleeper counts it"),
            ("sleeper.data.bucket", "copy the instance by `sleeper backup`"),
        ],
    )
    @pytest.mark.parametrize("after", ["", "y"])
    def test_what_is_fixed_stays(self, name, advice, after):
        """It is neither changed nor taken away; the message says what to do instead (SCH-9)."""
        with pytest.raises(PropertiesInvalid, match=advice) as refused:
            check_editable({name: "x"}, {name: after})

        assert list(refused.value.failures) == [name]

    def test_everything_else_may_change(self):
        """Also be added and taken away."""
        before = {**NAMED, "sleeper.table.online": "true", "sleeper.table.x": "1"}
        after = {**NAMED, "sleeper.table.gc.delay.minutes": "5", "sleeper.table.online": "false"}

        assert check_editable(before, after) is None
