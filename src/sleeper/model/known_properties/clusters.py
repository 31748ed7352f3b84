"""Properties of clusters for bulk imports that a deployment to AWS makes; names are upstream's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sleeper.model.known_properties.cloud import ARCHITECTURE
from sleeper.model.known_properties.value_kinds import (
    BOOLEAN,
    KEY_ARN,
    LIST,
    POSITIVE,
    TEXT,
    list_of,
    matching,
    one_of,
    setting,
    whole,
)

_CLUSTER_SIZE: Final = whole(0, 2_000, "a whole number from 0 to 2000")
_CORES: Final = matching("(1|2|4|8|16) ?v[Cc][Pp][Uu]", "a number of processors, such as 4vCPU")
_GIGABYTES: Final = matching("[1-9][0-9]* ?GB", "a number of gigabytes, such as 18GB")
_GROUPS: Final = list_of(
    matching("sg-[0-9a-f]{8,17}", ""), "a list of ids of security groups, such as sg-0a1b2c3d"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProperties:
    """Clusters of bulk imports that a deployment makes."""

    serverless_architecture: str = setting(
        "bulk.import.emr.serverless.architecture",
        "X86_64",
        ARCHITECTURE,
        "Processor of EMR Serverless.",
    )
    serverless_release: str = setting(
        "bulk.import.emr.serverless.release",
        "emr-spark-8.0.0",
        TEXT,
        "Release of EMR Serverless.",
    )
    serverless_autostart: bool = setting(
        "bulk.import.emr.serverless.autostart.enabled",
        "true",
        BOOLEAN,
        "A job starts the application.",
    )
    serverless_autostop: bool = setting(
        "bulk.import.emr.serverless.autostop.enabled",
        "true",
        BOOLEAN,
        "The application stops when it was idle.",
    )
    serverless_idle_minutes: int = setting(
        "bulk.import.emr.serverless.autostop.timeout",
        "15",
        whole(1, 10_080, "a whole number of minutes from 1 to 10080"),
        "Minutes idle before it stops.",
    )
    serverless_is_ready: bool = setting(
        "bulk.import.emr.serverless.initial.capacity.enabled",
        "false",
        BOOLEAN,
        "Workers are kept ready while the application is started, and are paid for.",
    )
    serverless_ready_drivers: int = setting(
        "bulk.import.emr.serverless.initial.capacity.driver.count",
        "5",
        POSITIVE,
        "Drivers that are kept ready.",
    )
    serverless_ready_driver_cores: str = setting(
        "bulk.import.emr.serverless.initial.capacity.driver.cores",
        "4vCPU",
        _CORES,
        "Processors of one.",
    )
    serverless_ready_driver_memory: str = setting(
        "bulk.import.emr.serverless.initial.capacity.driver.memory",
        "18GB",
        _GIGABYTES,
        "Memory of one.",
    )
    serverless_ready_driver_disk: str = setting(
        "bulk.import.emr.serverless.initial.capacity.driver.disk",
        "20GB",
        _GIGABYTES,
        "Disk of one.",
    )
    serverless_ready_executors: int = setting(
        "bulk.import.emr.serverless.initial.capacity.executor.count",
        "72",
        POSITIVE,
        "Executors that are kept ready.",
    )
    serverless_ready_executor_cores: str = setting(
        "bulk.import.emr.serverless.initial.capacity.executor.cores",
        "4vCPU",
        _CORES,
        "Processors of one.",
    )
    serverless_ready_executor_memory: str = setting(
        "bulk.import.emr.serverless.initial.capacity.executor.memory",
        "18GB",
        _GIGABYTES,
        "Memory of one.",
    )
    serverless_ready_executor_disk: str = setting(
        "bulk.import.emr.serverless.initial.capacity.executor.disk",
        "200GB",
        _GIGABYTES,
        "Disk of one.",
    )
    ebs_key_arn: str | None = setting(
        "bulk.import.emr.ebs.encryption.key.arn",
        None,
        KEY_ARN,
        "Key of KMS for the disks of EMR's machines; sleeper.kms.key.arn, or one that is made, if "
        "none is set.",
    )
    persistent_release: str = setting(
        "bulk.import.persistent.emr.release.label",
        "emr-spark-8.0.0",
        TEXT,
        "Release of EMR of the cluster that keeps running.",
    )
    persistent_architecture: str = setting(
        "bulk.import.persistent.emr.instance.architecture",
        "arm64",
        one_of("x86_64", "arm64"),
        "Processors of that cluster.",
    )
    persistent_master_x86: tuple[str, ...] = setting(
        "bulk.import.persistent.emr.master.x86.instance.types",
        "m7i.xlarge",
        LIST,
        "Machine types of its master.",
    )
    persistent_master_arm: tuple[str, ...] = setting(
        "bulk.import.persistent.emr.master.arm.instance.types",
        "m7g.xlarge",
        LIST,
        "Machine types of its master.",
    )
    persistent_executor_x86: tuple[str, ...] = setting(
        "bulk.import.persistent.emr.executor.x86.instance.types",
        "m7i.4xlarge",
        LIST,
        "Machine types of its executors.",
    )
    persistent_executor_arm: tuple[str, ...] = setting(
        "bulk.import.persistent.emr.executor.arm.instance.types",
        "m7g.4xlarge",
        LIST,
        "Machine types of its executors.",
    )
    persistent_scales: bool = setting(
        "bulk.import.persistent.emr.use.managed.scaling",
        "true",
        BOOLEAN,
        "Its executors become more and fewer with the work.",
    )
    persistent_capacity_min: int = setting(
        "bulk.import.persistent.emr.min.capacity", "1", _CLUSTER_SIZE, "Executors, at least."
    )
    persistent_capacity_max: int = setting(
        "bulk.import.persistent.emr.max.capacity", "10", _CLUSTER_SIZE, "Executors, at most."
    )
    persistent_steps: int = setting(
        "bulk.import.persistent.emr.step.concurrency.level",
        "2",
        whole(1, 256, "a whole number from 1 to 256"),
        "Jobs at once.",
    )
    persistent_requeue_s: int = setting(
        "bulk.import.persistent.emr.cluster.full.requeue.delay",
        "60",
        POSITIVE,
        "Seconds after which a job is tried again when the cluster is full.",
    )
    eks_admin_roles: tuple[str, ...] | None = setting(
        "bulk.import.eks.cluster.admin.roles",
        None,
        LIST,
        "Names of roles that may administer the cluster of EKS.",
    )
    eks_allowed_groups: tuple[str, ...] | None = setting(
        "bulk.import.eks.api.allowed.security.groups",
        None,
        _GROUPS,
        "Security groups that may reach the API of Kubernetes.",
    )
    eks_type: str = setting(
        "bulk.import.eks.cluster.type",
        "FARGATE",
        one_of("FARGATE", "AUTOMODE"),
        "Where pods run: on Fargate, or on machines that EKS starts.",
    )
    eks_state_machine_arn: str | None = setting(
        "bulk.import.eks.statemachine.arn",
        None,
        TEXT,
        "State machine of Step Functions that runs bulk imports on EKS.",
    )
    eks_executor_storage: str = setting(
        "bulk.import.eks.spark.executor.ephemeral.storage",
        "175Gi",
        TEXT,
        "Disk of each executor's pod.",
    )
