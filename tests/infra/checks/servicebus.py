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
    check_properties,
    relay_identity,
)

OF_ENTITIES = {"status": "Active", "enableBatchedOperations": True}
OF_TOPICS = {**OF_ENTITIES, "requiresDuplicateDetection": True}
OF_SUBSCRIPTIONS = {
    **OF_ENTITIES,
    "requiresSession": True,
    "deadLetteringOnMessageExpiration": True,
    "deadLetteringOnFilterEvaluationExceptions": True,
}


@check_each
def topic_and_subscriptions_have_what_the_guarantees_need(deployment: Deployment) -> None:
    check_properties(deployment.of(TOPICS), OF_TOPICS)
    check_properties(deployment.of(SUBSCRIPTIONS), OF_SUBSCRIPTIONS)
    for entity in (*deployment.of(TOPICS), *deployment.of(SUBSCRIPTIONS)):
        assert "autoDeleteOnIdle" not in entity.at("properties"), entity.name
        # Messages outlive a long stop of their consumer.
        assert parse_duration(entity.at("properties.defaultMessageTimeToLive")) >= timedelta(days=14)
    # No key, and no old TLS.
    check_properties(deployment.of(SERVICE_BUS), {"disableLocalAuth": True, "minimumTlsVersion": "1.2"})


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
