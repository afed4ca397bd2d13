"""The properties of the topic and its subscriptions on which the guarantees depend, and the roles in them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from relay.core.times import parse_duration
from tests.infra.deployment import Deployment, DeploymentFailure
from tests.infra.project import (
    RULES,
    SERVICE_BUS,
    SUBSCRIPTIONS,
    TOPICS,
    Project,
    azure_rights,
    check,
    check_each,
    relay_identity,
)


@check_each
def the_topic_detects_duplicates(deployment: Deployment) -> None:
    assert deployment.one(TOPICS).at("properties.requiresDuplicateDetection") is True


@check
def the_duplicate_detection_window_is_a_day_by_default(project: Project) -> None:
    for deployment in (project.bare, *project.both):
        assert deployment.one(TOPICS).at("properties.duplicateDetectionHistoryTimeWindow") == "P1D"

    other = project.deploy(duplicateDetectionWindow="PT2H").one(TOPICS)
    assert parse_duration(other.at("properties.duplicateDetectionHistoryTimeWindow")) == timedelta(hours=2)


@check
def the_topic_is_partitioned_on_standard_and_cannot_be_on_premium(project: Project) -> None:
    assert project.trial.one(SERVICE_BUS).at("sku") == {"name": "Standard", "tier": "Standard"}
    assert project.trial.one(TOPICS).at("properties.enablePartitioning") is True
    assert project.production.one(SERVICE_BUS).at("sku") == {"name": "Premium", "tier": "Premium", "capacity": 1}
    assert project.production.one(TOPICS).at("properties.enablePartitioning") is False


@check
def what_only_premium_has_is_left_out_on_standard(project: Project) -> None:
    assert "maxMessageSizeInKilobytes" not in project.trial.one(TOPICS).at("properties")
    assert "capacity" not in project.trial.one(SERVICE_BUS).at("sku")
    assert project.production.one(TOPICS).at("properties.maxMessageSizeInKilobytes") == 1024


@check
def the_topic_keeps_the_order(project: Project) -> None:
    # The property has no effect on a partitioned topic, where the session id is the partition key and each
    # partition keeps its order. On an unpartitioned topic (Premium) the order depends on it.
    # https://github.com/Azure/azure-service-bus/issues/56
    for deployment in project.both:
        topic = deployment.one(TOPICS)
        assert topic.at("properties.enablePartitioning") or topic.at("properties.supportOrdering")
    assert project.production.one(TOPICS).at("properties.supportOrdering") is True


@check_each
def topic_and_subscriptions_are_active(deployment: Deployment) -> None:
    for resource in (*deployment.of(TOPICS), *deployment.of(SUBSCRIPTIONS)):
        assert resource.at("properties.status") == "Active", resource.name
        assert resource.at("properties.enableBatchedOperations") is True, resource.name


@check_each
def nothing_is_deleted_when_idle(deployment: Deployment) -> None:
    for resource in (*deployment.of(TOPICS), *deployment.of(SUBSCRIPTIONS)):
        assert "autoDeleteOnIdle" not in resource.at("properties"), resource.name


@check_each
def every_subscription_requires_sessions(deployment: Deployment) -> None:
    for subscription in deployment.of(SUBSCRIPTIONS):
        assert subscription.at("properties.requiresSession") is True, subscription.name


@check_each
def expired_and_unfilterable_messages_are_dead_lettered(deployment: Deployment) -> None:
    for subscription in deployment.of(SUBSCRIPTIONS):
        assert subscription.at("properties.deadLetteringOnMessageExpiration") is True
        assert subscription.at("properties.deadLetteringOnFilterEvaluationExceptions") is True


@check_each
def messages_outlive_a_long_stop_of_their_consumer(deployment: Deployment) -> None:
    for entity in (*deployment.of(TOPICS), *deployment.of(SUBSCRIPTIONS)):
        assert parse_duration(entity.at("properties.defaultMessageTimeToLive")) >= timedelta(days=14)


@check
def every_subscription_limits_deliveries(project: Project) -> None:
    for subscription in project.trial.of(SUBSCRIPTIONS):
        assert subscription.at("properties.maxDeliveryCount") == 10
        assert parse_duration(subscription.at("properties.lockDuration")) <= timedelta(minutes=5)


@check
def subscriptions_come_from_the_parameter(project: Project) -> None:
    mail = {"name": "mail", "maxDeliveryCount": 3, "lockDuration": "PT30S", "messageTimeToLive": "P2D"}
    subscription = project.deploy(subscriptions=[mail]).one(SUBSCRIPTIONS)

    assert subscription.name.endswith("/domain-events/mail")
    assert subscription.at("properties.maxDeliveryCount") == 3
    assert subscription.at("properties.lockDuration") == "PT30S"
    assert subscription.at("properties.defaultMessageTimeToLive") == "P2D"


@check
def a_filter_replaces_the_default_rule(project: Project) -> None:
    rules = {rule.name.split("/")[-2]: rule for rule in project.trial.of(RULES)}
    assert {rule.name.rpartition("/")[2] for rule in rules.values()} == {"$Default"}
    assert rules["all"].at("properties.filterType") == "SqlFilter"
    assert rules["all"].at("properties.sqlFilter.sqlExpression") == "1=1"
    assert rules["names"].at("properties.filterType") == "CorrelationFilter"
    assert rules["names"].at("properties.correlationFilter.label") == "ContactNameUpdatedEvent"


@check
def a_subscription_may_have_an_sql_filter_of_its_own(project: Project) -> None:
    orders = {"name": "orders", "filter": "type = 'order' AND sys.Label <> 'OrderDrafted'"}
    deployment = project.deploy(subscriptions=[{"name": "all"}, orders])
    rules = {rule.name.split("/")[-2]: rule for rule in deployment.of(RULES)}

    assert {rule.name.rpartition("/")[2] for rule in rules.values()} == {"$Default"}, "it replaces the rule of all"
    assert rules["orders"].at("properties.filterType") == "SqlFilter"
    assert rules["orders"].at("properties.sqlFilter.sqlExpression") == orders["filter"]
    assert rules["all"].at("properties.sqlFilter.sqlExpression") == "1=1"
    both = [{**orders, "action": "OrderPlaced"}]
    with pytest.raises(DeploymentFailure, match="orders has an action and a filter"):
        project.deploy(subscriptions=both)


@check_each
def the_namespace_has_no_key_authentication_and_no_old_tls(deployment: Deployment) -> None:
    assert deployment.one(SERVICE_BUS).at("properties.disableLocalAuth") is True
    assert deployment.one(SERVICE_BUS).at("properties.minimumTlsVersion") == "1.2"


@check_each
def the_relay_may_only_send_to_the_topic(deployment: Deployment) -> None:
    _, principal = relay_identity(deployment)
    rights = {right for right in azure_rights(deployment, principal) if "/Microsoft.ServiceBus/" in right[1]}

    assert rights == {("Azure Service Bus Data Sender", deployment.one(TOPICS).id)}


@check
def a_consumer_may_only_receive_from_its_subscription(project: Project) -> None:
    subscriptions = [{"name": "all", "receiverPrincipalIds": ["consumer"]}, {"name": "names"}]
    deployment = project.deploy(subscriptions=subscriptions)
    own = deployment.one(SUBSCRIPTIONS, "all")

    assert azure_rights(deployment, "consumer") == {("Azure Service Bus Data Receiver", own.id)}


@check
def an_operator_may_only_manage_the_topic(project: Project) -> None:
    deployment = project.deploy(operatorPrincipalIds=["operator"])
    topic = deployment.one(TOPICS)

    assert azure_rights(deployment, "operator") == {("Azure Service Bus Data Owner", topic.id)}
