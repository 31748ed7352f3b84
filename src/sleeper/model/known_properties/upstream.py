"""Properties of upstream Sleeper that are checked and stored, and belong to no typed group.

Some are passed on to a cluster. The others are not used: most of them size parts of an AWS
deployment. They are accepted so that upstream's own files can be used as they are (rule INS-5).
"""

from __future__ import annotations

from typing import Any, Final

from sleeper.model.known_properties.value_kinds import (
    BOOLEAN,
    BYTE_SIZE,
    INTEGER,
    LIST,
    NOT_NEGATIVE,
    NUMBER,
    POSITIVE,
    POSITIVE_LONG,
    QUEUE_BATCH,
    QUEUE_WAIT,
    TEXT,
    Kind,
    Property,
    family,
    list_of,
    one_of,
    whole,
)

_ENGINE = one_of("JAVA", "DATAFUSION", "DATAFUSION_EXPERIMENTAL")
_ARCHITECTURES = list_of(one_of("x86_64", "arm64"), "a list of x86_64 and arm64")

_BY_INPUT = "else as many as the bytes of the input need, while they have work."
_BY_CORES = "else two for each core."

_Row = tuple[str, str | None, Kind[Any], str]
"""Name, default, kind and meaning of a property."""

_TABLE = (
    ("data.engine", "DATAFUSION", _ENGINE, "There is one engine here."),
    ("parquet.columnindex.truncate.length", "128", POSITIVE, "Bytes kept of a page's limits."),
    ("parquet.statistics.truncate.length", "2147483647", POSITIVE, "Bytes of a group's limits."),
    ("query.parquet.column.index.enabled", "false", BOOLEAN, "Page indexes are always used here."),
    ("fs.s3a.readahead.range", None, BYTE_SIZE, "Read-ahead of upstream's S3 reader."),
    ("datafusion.s3.readahead.enabled", "true", BOOLEAN, "Read-ahead of upstream's DataFusion."),
    ("retain.after.removal", "true", BOOLEAN, "Removal from a configuration takes it offline."),
    ("reuse.existing", "false", BOOLEAN, "A configuration takes over a table that exists."),
    ("compaction.job.send.batch.size", "1000", POSITIVE, "Compaction jobs sent together."),
    ("compaction.job.send.timeout.seconds", "90", POSITIVE, "Locks on files are awaited so long."),
    ("compaction.job.send.retry.delay.seconds", "30", NOT_NEGATIVE, "Wait between two looks."),
    ("compaction.job.async.commit.batching", "true", BOOLEAN, "Commits are gathered in batches."),
    ("statestore.committer.update.every.commit", "false", BOOLEAN, "Committer replays each time."),
    ("statestore.committer.update.every.batch", "true", BOOLEAN, "Committer replays each batch."),
    ("statestore.transactionlog.files.snapshot.batch.size", "1000", POSITIVE, "Files in a batch."),
    (
        "statestore.transactionlog.partitions.snapshot.batch.size",
        "1000",
        POSITIVE,
        "Partitions in a batch.",
    ),
    ("ingest.row.batch.type", "arrow", one_of("arrow", "arraylist"), "Rows are Arrow here."),
    ("ingest.partition.file.writer.type", "direct", one_of("async", "direct"), "Always direct."),
)
_TABLE_EMR = (
    ("instance.architecture", "arm64", _ARCHITECTURES, "Processors of the cluster."),
    ("master.x86.instance.types", "m7i.xlarge", TEXT, "Machine types of its master."),
    ("master.arm.instance.types", "m7g.xlarge", TEXT, "Machine types of its master."),
    ("executor.x86.instance.types", "m7i.4xlarge", TEXT, "Machine types of its executors."),
    ("executor.arm.instance.types", "m7g.4xlarge", TEXT, "Machine types of its executors."),
    ("executor.market.type", "SPOT", one_of("SPOT", "ON_DEMAND"), "How executors are paid for."),
    ("executor.initial.capacity", "2", POSITIVE, "Capacity units of executors to begin with."),
    ("executor.max.capacity", "10", POSITIVE, "Capacity units of executors, at most."),
    ("release.label", "emr-spark-8.0.0", TEXT, "Release of EMR."),
)

UPSTREAM_TABLE_PROPERTIES: Final[tuple[Property, ...]] = (
    *family("Bulk import on EMR", "table.bulk.import.emr.", _TABLE_EMR, inherits=True, used=True),
    *family("Kept for upstream", "table.", _TABLE, inherits=True),
)

_GENERAL = (
    ("filesystem", "s3a://", TEXT, "Scheme of upstream's file system."),
    ("userjars", None, LIST, "Code of the user, by object name."),
    ("jars.bucket", None, TEXT, "Where that code is."),
    ("properties.force.reload", "false", BOOLEAN, "Properties are read again for every job."),
    ("cache.table.properties.provider.timeout.minutes", "60", POSITIVE, "How old they may be."),
    ("fs.s3a.max-connections", "100", POSITIVE, "Connections to S3."),
    ("fs.s3a.upload.block.size", "32M", BYTE_SIZE, "Bytes of one part of an upload."),
    ("metrics.namespace", "Sleeper", TEXT, "Namespace of metrics."),
    ("fargate.version", "1.4.0", TEXT, "Version of Fargate; the newest is used."),
    ("run.table.metrics.offline", "false", BOOLEAN, "Metrics of offline tables too."),
    ("artefacts.deployment", None, TEXT, "Deployment of upstream's jars and images."),
    ("tags.excluded.resources", None, LIST, "Types of resources without tags."),
    ("lambda.deploy.type", "jar", one_of("jar", "container"), "Functions are containers here."),
    ("endpoint.url", None, TEXT, "Endpoint of AWS; here it comes from the environment."),
    ("vpc.endpoint.check", "true", BOOLEAN, "Deployment looks for an S3 endpoint in the VPC."),
    ("athena.spill.bucket.ageoff.days", "1", POSITIVE, "There is no connector for Athena."),
    ("athena.handler.classes", None, LIST, "There is no connector for Athena."),
    ("athena.handler.memory.mb", "4096", POSITIVE, "There is no connector for Athena."),
    ("athena.handler.timeout.seconds", "900", POSITIVE, "There is no connector for Athena."),
    ("athena.spill.master.key.arn", None, TEXT, "There is no connector for Athena."),
    ("logging.level", None, TEXT, "Level of upstream's log."),
    ("logging.apache.level", None, TEXT, "Level of Apache's libraries."),
    ("logging.parquet.level", None, TEXT, "Level of Parquet's Java library."),
    ("logging.aws.level", None, TEXT, "Level of Amazon's Java libraries."),
    ("logging.root.level", None, TEXT, "Level of all else in Java."),
    ("logging.backtrace", None, TEXT, "Backtraces of upstream's Rust."),
    ("logging.rust", None, TEXT, "Level of upstream's Rust."),
    ("bulk.export.memory.mb", None, POSITIVE, "Memory of the function that starts exports."),
    ("bulk.export.timeout.seconds", "900", POSITIVE, "Its time."),
    ("bulk.export.task.wait.time.seconds", "20", QUEUE_WAIT, "How long a look at a queue lasts."),
)
_STATE: tuple[_Row, ...] = (
    ("statestore.provider.cache.size", "10", INTEGER, "Tables kept open; negative: any number."),
    ("statestore.snapshot.creation.lambda.period.seconds", "60", POSITIVE, "Snapshots are made."),
    ("statestore.snapshot.deletion.lambda.period.minutes", "60", POSITIVE, "Old ones deleted."),
    ("statestore.transaction.deletion.lambda.period.minutes", "60", POSITIVE, "Old entries too."),
    ("statestore.committer.platform", "LAMBDA", one_of("LAMBDA", "EC2"), "Where it runs."),
    ("tables.index.dynamo.consistent.reads", "true", BOOLEAN, "Reads of the index are consistent."),
    ("statestore.provider.min.heap.target.amount", "100M", BYTE_SIZE, "Heap to keep free."),
    ("statestore.committer.ec2.type", "m8g.xlarge", TEXT, "Machine of a committer on EC2."),
    ("statestore.snapshot.creation.batch.size", "1", QUEUE_BATCH, "Tables in one run."),
    ("statestore.snapshot.deletion.batch.size", "1", QUEUE_BATCH, "Tables in one run."),
    ("statestore.transaction.deletion.batch.size", "1", QUEUE_BATCH, "Tables in one run."),
    ("statestore.snapshot.creation.memory.mb", None, POSITIVE, "Memory of its function."),
    ("statestore.transaction.follower.memory.mb", None, POSITIVE, "Memory of its function."),
    ("statestore.snapshot.creation.lambda.timeout.seconds", "900", POSITIVE, "Its time."),
    ("statestore.transaction.deletion.lambda.timeout.seconds", "900", POSITIVE, "Its time."),
    ("statestore.transaction.follower.lambda.timeout.seconds", "900", POSITIVE, "Its time."),
    (
        "statestore.transactionlog.eventcount.metrics.enabled",
        "false",
        BOOLEAN,
        "Metrics of the function that follows logs.",
    ),
    *(
        (f"statestore.{function}.concurrency.{limit}", None, POSITIVE, "Runs at once, at most.")
        for function in (
            "snapshot.creation",
            "snapshot.deletion",
            "transaction.deletion",
            "transaction.follower",
        )
        for limit in ("reserved", "max")
    ),
)
_INGEST = (
    ("partition.refresh.period", "120", POSITIVE, "Seconds a partition tree stays good."),
    ("max.local.rows", "100000000", POSITIVE_LONG, "Rows on local disk (arraylist)."),
    ("memory.max.batch.size", "1000000", POSITIVE_LONG, "Rows in memory (arraylist)."),
    ("arrow.working.buffer.bytes", "268435456", BYTE_SIZE, "Memory for sorting (arrow)."),
    ("arrow.batch.buffer.bytes", "1073741824", BYTE_SIZE, "Memory for rows (arrow)."),
    ("arrow.max.local.store.bytes", "2147483648", BYTE_SIZE, "Local disk (arrow)."),
    ("arrow.max.single.write.to.file.rows", "1024", POSITIVE, "Rows in a slice (arrow)."),
    ("async.client.type", "crt", one_of("crt", "java"), "Upstream's S3 client."),
    ("async.crt.part.size.bytes", "134217728", BYTE_SIZE, "Bytes of one part of an upload."),
    ("async.crt.target.throughput.gbps", "10", NUMBER, "Speed of uploads to aim at."),
    ("fs.s3a.experimental.input.fadvise", None, TEXT, "How Hadoop reads input files."),
)
_COMPACTION: tuple[_Row, ...] = (
    ("job.creation.batch.size", "1", QUEUE_BATCH, "Tables in one run of it."),
    ("job.commit.batch.size", "1000", POSITIVE, "Finished jobs in one commit, at most."),
    ("job.commit.batching.window.seconds", "30", NOT_NEGATIVE, "How long they are gathered."),
    ("queue.visibility.timeout.seconds", "900", POSITIVE, "Lease of a message."),
    ("keepalive.period.seconds", "300", POSITIVE, "How often it is renewed."),
    ("job.failed.visibility.timeout.seconds", "60", NOT_NEGATIVE, "Wait after a failure."),
    ("task.wait.time.seconds", "20", QUEUE_WAIT, "How long one look at the queue lasts."),
    ("task.delay.before.retry.seconds", "10", NOT_NEGATIVE, "Wait before the next look."),
    ("task.max.idle.time.seconds", "60", NOT_NEGATIVE, "A task that is idle so long ends."),
    ("task.wait.for.input.file.assignment", "false", BOOLEAN, "Tasks wait for their locks."),
    ("job.max.retries", "3", POSITIVE, "Deliveries of a job, at most."),
    ("job.dispatch.max.retries", "3", POSITIVE, "Deliveries of a batch, at most."),
    ("job.commit.max.retries", "3", POSITIVE, "Deliveries of a commit, at most."),
    ("tracker.async.commit.updates.enabled", "true", BOOLEAN, "So are commits by the committer."),
    ("pending.queue.visibility.timeout.seconds", "900", POSITIVE, "Lease of a batch of jobs."),
    ("task.max.alive.time.minutes", None, POSITIVE, "A task that lived so long ends."),
    ("task.max.alive.jitter.minutes", None, NOT_NEGATIVE, "Drawn minutes less than that."),
    ("task.scaling.overhead.fixed", None, NOT_NEGATIVE, "Megabytes that ECS keeps (EC2)."),
    ("task.scaling.overhead.percentage", None, NOT_NEGATIVE, "Memory that ECS keeps (EC2)."),
    ("ecs.launch.type", "FARGATE", one_of("FARGATE", "EC2"), "Tasks run on Fargate here."),
    ("ec2.type", "t4g.xlarge", TEXT, "Machine type (EC2)."),
    ("ec2.pool.minimum", "0", NOT_NEGATIVE, "Machines, at least (EC2)."),
    ("ec2.pool.maximum", "75", POSITIVE, "Machines, at most (EC2)."),
    ("ec2.root.size", "50", POSITIVE, "Gibibytes of a machine's disk (EC2)."),
    *(
        (f"{function}.{setting}", default, POSITIVE, meaning)
        for function in ("job.creation", "job.dispatch", "commit.batcher")
        for setting, default, meaning in (
            ("memory.mb", None, "Memory of its function."),
            ("timeout.seconds", "900", "Time of its function."),
            ("concurrency.reserved", None, "Runs at once, at most."),
            ("concurrency.max", None, "Runs at once, at most."),
        )
    ),
)
_SPLITTING = (
    ("reserved.concurrency", "10", POSITIVE, "Splits at once, at most."),
    ("memory.mb", None, POSITIVE, "Memory of the function that splits."),
    ("timeout.seconds", "900", POSITIVE, "Its time."),
)
_QUERY = (
    ("query.processor.state.refresh.period.seconds", "60", POSITIVE, "How old the state may be."),
    ("query.processor.row.retrieval.threads", "10", POSITIVE, "Threads that read."),
    ("query.warm.lambda.period.minutes", "5", POSITIVE, "How often a query keeps it warm."),
    ("query.s3.max-connections", "1024", POSITIVE, "Connections to S3."),
    ("query.results.queue.visibility.timeout.seconds", "900", POSITIVE, "Lease of an answer."),
)
_BULK_IMPORT = (
    (
        "class.name",
        "sleeper.bulkimport.runner.dataframelocalsort.BulkImportDataframeLocalSortDriver",
        TEXT,
        "Which of upstream's algorithms; there is one here.",
    ),
    ("eks.is.native.libs.image", "false", BOOLEAN, "Image with Hadoop's native libraries."),
    ("eks.awscli.layer.arn", None, TEXT, "Layer with the command line of AWS."),
)
_EBS_SIZE = whole(10, 1024, "a number of gibibytes from 10 to 1024")
_EBS_TYPE = one_of("gp2", "gp3", "io1", "io2")
_EBS_COUNT = whole(1, 25, "a whole number from 1 to 25")
_CLUSTERS = (
    ("eks.k8s.endpoint", None, TEXT, "Address of the Kubernetes cluster's API."),
    ("eks.k8s.namespace", None, TEXT, "Namespace for its pods; `default` if none is set."),
    ("emr.role.name", None, TEXT, "Service role; EMR_DefaultRole_V2 if none is set."),
    ("emr.ec2.role.name", None, TEXT, "Role of machines; EMR_EC2_DefaultRole if none is set."),
    ("emr.security.conf.name", None, TEXT, "EMR's security configuration of a new cluster."),
    ("emr.keypair.name", None, TEXT, "EC2 key pair, to reach a new cluster's machines by SSH."),
    ("emr.master.additional.security.group", None, TEXT, "One more security group of its master."),
    ("emr.ebs.volume.size.gb", "256", _EBS_SIZE, "Size of one disk of its executors."),
    ("emr.ebs.volume.type", "gp2", _EBS_TYPE, "Type of its executors' disks."),
    ("emr.ebs.volumes.per.instance", "4", _EBS_COUNT, "Disks of each of its executors."),
    ("persistent.emr.cluster.name", None, TEXT, "A cluster that runs, for persistent-emr."),
    ("emr.serverless.application.id", None, TEXT, "Application of EMR Serverless."),
    ("emr.serverless.role.arn", None, TEXT, "Role of its jobs."),
    ("emr.spark.executor.instances", None, POSITIVE, f"Executors; {_BY_INPUT}"),
    ("emr.spark.executor.cores", "5", POSITIVE, "Cores of one."),
    ("emr.spark.executor.memory", "6g", TEXT, "Heap of one; workers in Python have the overhead."),
    ("emr.spark.executor.memory.overhead", "11946m", TEXT, "Memory of one outside the heap."),
    ("emr.spark.driver.cores", "5", POSITIVE, "Cores of the driver."),
    ("emr.spark.driver.memory", "4g", TEXT, "Memory of the driver."),
    ("emr.spark.default.parallelism", None, POSITIVE, f"Tasks of a stage; {_BY_CORES}"),
    ("emr.spark.sql.shuffle.partitions", None, POSITIVE, f"Partitions of a shuffle; {_BY_CORES}"),
    (
        "emr.serverless.spark.executor.instances",
        None,
        POSITIVE,
        f"Executors, serverless; {_BY_INPUT}",
    ),
    ("emr.serverless.spark.executor.cores", "4", POSITIVE, "Cores of one, serverless."),
    ("emr.serverless.spark.executor.memory", "6G", TEXT, "Memory of one, serverless."),
    (
        "emr.serverless.spark.default.parallelism",
        None,
        POSITIVE,
        f"Tasks, serverless; {_BY_CORES}",
    ),
)

UPSTREAM_INSTANCE_PROPERTIES: Final[tuple[Property, ...]] = (
    *family("General", "", _GENERAL),
    *family("Table state", "", _STATE),
    *family("Standard ingest", "ingest.", _INGEST),
    *family("Compaction", "compaction.", _COMPACTION),
    *family("Partition splitting", "partition.splitting.", _SPLITTING),
    *family("Queries", "", _QUERY),
    *family("Bulk import on Spark", "bulk.import.", _CLUSTERS, used=True),
    *family("Bulk import on Spark", "bulk.import.", _BULK_IMPORT),
)
