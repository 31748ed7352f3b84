"""`SleeperInstance`: an instance with all that runs its jobs, as a construct of the CDK.

    from aws_cdk import App, Environment
    from sleeper.deploy.cdk import SleeperInstance

    app = App()
    env = Environment(account="123456789012", region="eu-west-2")
    SleeperInstance(app, "Sleeper", instance_id="demo", env=env, properties={...})

It has the stacks of `sleeper deploy aws`, and is the only public module of `sleeper.deploy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import Annotations, Environment, Stack, Stage, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from sleeper.deploy.settings import DeploymentSettings, deployed_values
from sleeper.deploy.stacks.build import build
from sleeper.deploy.stacks.instance import user_policies
from sleeper.deploy.stacks.parts import statement, use_users_key
from sleeper.errors import BadRequest, PropertiesInvalid
from sleeper.model.jobs.kinds import QueueName, Senders
from sleeper.model.known_properties.catalogue import INSTANCE_PROPERTIES_BY_NAME
from sleeper.model.known_properties.given import PropertyValue, property_texts, unknown_names
from sleeper.model.stacks import StackName

DIRECT_INGEST: Final = "ingest-direct"
ADMIN: Final = "admin"

_PACKAGES: Final = "sleeper.bulk.import.environment"
_ON_EMR: Final = (StackName.EMR_SERVERLESS, StackName.EMR, StackName.PERSISTENT_EMR)


class SleeperInstance(Construct):
    """An instance in AWS, with the stacks that its properties choose.

    In an app or a stage its parts are stacks of their own, with the names that `sleeper deploy aws`
    gives them; in a stack they are nested. All share names alone: no value passes from stack to
    stack. When they are deployed, the instance is at `aws://` and its id. Images must be in ECR
    before.

    Buckets, queues and policies are known by their names. Who attaches a policy, or uses them while
    the app is deployed, makes the construct a dependency: `role.node.add_dependency(instance)`.

    Args:
        scope: An app, a stage, or anything in a stack.
        construct_id: The id of the construct.
        instance_id: The id of the instance: at most 20 letters, digits, dots and dashes.
        properties: Its properties by full name; values are str, int or bool.
        env: Account and region, in numbers and letters; those of the scope, if it has them.

    Attributes:
        instance_id: The id of the instance.
        url: What `sleeper.connect` opens.
        stacks: Its stacks by kind, such as `QueryStack`, each after those that it needs.
        config_bucket: The bucket of properties.
        table_bucket: The bucket of rows.
        query_results_bucket: The bucket of results of queries that came from the queue.
        bulk_import_bucket: The bucket of bulk imports.
        bulk_export_bucket: The bucket of exports.
        policies: The policies for users by their names: `ingest-by-queue`, `ingest-direct`,
            `query` and `admin`.

    Raises:
        BadRequest: account or region are not known.
        PropertiesInvalid: a property is not known or not allowed; lists every failure.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        instance_id: str,
        properties: Mapping[str, PropertyValue],
        env: Environment | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        # Templates are sent as they are, and paths of constructs would make them too long.
        self.node.set_context("aws:cdk:enable-path-metadata", value=False)
        settings = _settings(instance_id, properties, *_place(scope, env))
        self._settings = settings
        self.instance_id = instance_id
        self.url = settings.names.url
        self.stacks: Mapping[str, Stack] = {
            str(each.node.id): each for each in build(settings, self)
        }
        names = settings.names.buckets
        self.config_bucket = self._bucket(names.config_bucket)
        self.table_bucket = self._bucket(names.data_bucket)
        self.query_results_bucket = self._bucket(names.query_results_bucket)
        self.bulk_import_bucket = self._bucket(names.bulk_import_bucket)
        self.bulk_export_bucket = self._bucket(names.bulk_export_bucket)
        self.policies: Mapping[str, iam.IManagedPolicy] = {
            each.name: iam.ManagedPolicy.from_managed_policy_arn(
                self._known, f"{each.name}-policy-by-arn", settings.names.policy_arn(each.name)
            )
            for each in user_policies(settings)
        }
        if any(map(settings.has, _ON_EMR)) and settings.properties.jobs.environment is None:
            Annotations.of(self).add_warning(
                f"bulk imports on EMR need Sleeper's packages: set {_PACKAGES} to their folder "
                "(docs/spark), or leave these stacks out of sleeper.optional.stacks"
            )

    @property
    def ingest_queue(self) -> sqs.IQueue:
        """The queue of ingest jobs."""
        return self.queue(QueueName.INGEST)

    @property
    def query_queue(self) -> sqs.IQueue:
        """The queue of queries."""
        return self.queue(QueueName.QUERY)

    def queue(self, name: QueueName) -> sqs.IQueue:
        """Return the queue of a kind of jobs."""
        construct_id, names = f"{name}-queue-by-arn", self._settings.names
        made = self._known.node.try_find_child(construct_id)
        if made is None:
            queue = names.queue(name)
            return sqs.Queue.from_queue_attributes(
                self._known,
                construct_id,
                queue_arn=names.queue_arn(queue),
                queue_url=names.queue_url(queue),
                fifo=self._settings.queue(name).fifo,
                key_arn=self._settings.properties.cloud.key_arn,
            )
        return made

    def grant_query(self, grantee: iam.IGrantable) -> None:
        """Allow to read rows of all tables, and to send queries and exports to queues."""
        self._grant(Senders.QUERY, grantee)

    def grant_ingest(self, grantee: iam.IGrantable) -> None:
        """Allow to submit ingest jobs, bulk imports and files of the batcher; no rows are read."""
        self._grant(Senders.INGEST, grantee)

    def grant_ingest_direct(self, grantee: iam.IGrantable) -> None:
        """Allow to read, add, change and delete rows of all tables, without a queue."""
        self._grant(DIRECT_INGEST, grantee)

    def grant_admin(self, grantee: iam.IGrantable) -> None:
        """Allow all that can be done with the instance, but making and deleting its resources."""
        self._grant(ADMIN, grantee)

    def _grant(self, policy: str, grantee: iam.IGrantable) -> None:
        (found,) = (each for each in user_policies(self._settings) if each.name == policy)
        key = self._settings.properties.cloud.key_arn
        for each in use_users_key(found.grants, key):
            grantee.grant_principal.add_to_principal_policy(statement(each))

    @property
    def _known(self) -> Stack:
        """Where resources are known by their names: such constructs must be in some stack."""
        return self.stacks[StackName.INSTANCE]

    def _bucket(self, name: str) -> s3.IBucket:
        arn = self._settings.properties.cloud.key_arn
        key = arn and kms.Key.from_key_arn(self._known, f"{name}-key-by-arn", arn)
        return s3.Bucket.from_bucket_attributes(
            self._known, f"{name}-by-name", bucket_name=name, encryption_key=key or None
        )


def _place(scope: Construct, env: Environment | None) -> tuple[str, str]:
    """Return account and region, which names and checks need as they are.

    Raises:
        BadRequest: one is not known before the deployment.
    """
    here = Stack.of(scope) if any(map(Stack.is_stack, scope.node.scopes)) else Stage.of(scope)
    found = []
    for what in ("account", "region"):
        given = getattr(env, what, None) or getattr(here, what, None)
        if given is None or Token.is_unresolved(given):
            raise BadRequest(
                f"SleeperInstance needs to know its {what}, which is part of names: pass "
                "env=Environment(account=..., region=...), or give it to the stack or stage"
            )
        found.append(str(given))
    return found[0], found[1]


def _settings(
    instance_id: str, properties: Mapping[str, PropertyValue], account: str, region: str
) -> DeploymentSettings:
    given = property_texts(properties)
    if failures := unknown_names(given, INSTANCE_PROPERTIES_BY_NAME):
        raise PropertiesInvalid(failures)
    values = deployed_values(instance_id, {}, given)
    return DeploymentSettings.of(values, account=account, region=region)
