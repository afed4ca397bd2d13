"""What the topic and its subscriptions must be for order, once and nothing lost."""

from __future__ import annotations

from datetime import timedelta

from relay.cli.times import parse_duration
from tests.infra.project import (
    RULES,
    SERVICE_BUS,
    SUBSCRIPTIONS,
    TOPICS,
    Project,
    azure_rights,
    check,
    relay_identity,
)


@check
def the_topic_detects_duplicates(project: Project) -> None:
    for deployment in project.both:
        assert deployment.one(TOPICS).at("properties.requiresDuplicateDetection") is True


@check
def the_duplicate_detection_window_is_a_day_unless_said_otherwise(project: Project) -> None:
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
def the_topic_hands_messages_on_in_order(project: Project) -> None:
    # On a partitioned topic the property has no effect: a session's id is its partition key there, and one
    # partition keeps its order. On an unpartitioned one (Premium) the order rests on the property.
    # https://github.com/Azure/azure-service-bus/issues/56
    for deployment in project.both:
        topic = deployment.one(TOPICS)
        assert topic.at("properties.enablePartitioning") or topic.at("properties.supportOrdering")
    assert project.production.one(TOPICS).at("properties.supportOrdering") is True


@check
def topic_and_subscriptions_are_open(project: Project) -> None:
    for deployment in project.both:
        for resource in (*deployment.of(TOPICS), *deployment.of(SUBSCRIPTIONS)):
            assert resource.at("properties.status") == "Active", resource.name
            assert resource.at("properties.enableBatchedOperations") is True, resource.name


@check
def nothing_deletes_itself_when_idle(project: Project) -> None:
    for deployment in project.both:
        for resource in (*deployment.of(TOPICS), *deployment.of(SUBSCRIPTIONS)):
            assert "autoDeleteOnIdle" not in resource.at("properties"), resource.name


@check
def every_subscription_requires_sessions(project: Project) -> None:
    for deployment in project.both:
        for subscription in deployment.of(SUBSCRIPTIONS):
            assert subscription.at("properties.requiresSession") is True, subscription.name


@check
def what_expires_or_cannot_be_filtered_is_dead_lettered(project: Project) -> None:
    for deployment in project.both:
        for subscription in deployment.of(SUBSCRIPTIONS):
            assert subscription.at("properties.deadLetteringOnMessageExpiration") is True
            assert subscription.at("properties.deadLetteringOnFilterEvaluationExceptions") is True


@check
def messages_live_long_enough_for_a_consumer_that_is_away(project: Project) -> None:
    for deployment in project.both:
        for entity in (*deployment.of(TOPICS), *deployment.of(SUBSCRIPTIONS)):
            assert parse_duration(entity.at("properties.defaultMessageTimeToLive")) >= timedelta(days=14)


@check
def every_subscription_gives_up_a_message_after_some_deliveries(project: Project) -> None:
    for subscription in project.trial.of(SUBSCRIPTIONS):
        assert subscription.at("properties.maxDeliveryCount") == 10
        assert parse_duration(subscription.at("properties.lockDuration")) <= timedelta(minutes=5)


@check
def subscriptions_come_from_the_parameter(project: Project) -> None:
    asked = {"name": "mail", "maxDeliveryCount": 3, "lockDuration": "PT30S", "messageTimeToLive": "P2D"}
    subscription = project.deploy(subscriptions=[asked]).one(SUBSCRIPTIONS)

    assert subscription.name.endswith("/domain-events/mail")
    assert subscription.at("properties.maxDeliveryCount") == 3
    assert subscription.at("properties.lockDuration") == "PT30S"
    assert subscription.at("properties.defaultMessageTimeToLive") == "P2D"


@check
def a_filter_takes_the_place_of_the_rule_that_lets_everything_through(project: Project) -> None:
    for deployment in project.both:
        rules = {rule.name.split("/")[-2]: rule for rule in deployment.of(RULES)}
        assert {rule.name.rpartition("/")[2] for rule in rules.values()} == {"$Default"}
        assert rules["all"].at("properties.filterType") == "SqlFilter"
        assert rules["all"].at("properties.sqlFilter.sqlExpression") == "1=1"
        assert rules["names"].at("properties.filterType") == "CorrelationFilter"
        assert rules["names"].at("properties.correlationFilter.label") == "ContactNameUpdatedEvent"


@check
def the_namespace_takes_no_keys_and_no_old_tls(project: Project) -> None:
    for deployment in project.both:
        assert deployment.one(SERVICE_BUS).at("properties.disableLocalAuth") is True
        assert deployment.one(SERVICE_BUS).at("properties.minimumTlsVersion") == "1.2"


@check
def the_relay_may_send_to_the_topic_and_no_more(project: Project) -> None:
    for deployment in project.both:
        _, principal = relay_identity(deployment)
        rights = {right for right in azure_rights(deployment, principal) if "/Microsoft.ServiceBus/" in right[1]}

        assert rights == {("Azure Service Bus Data Sender", deployment.one(TOPICS).id)}


@check
def a_consumer_may_receive_from_its_own_subscription_and_no_more(project: Project) -> None:
    asked = [{"name": "all", "receiverPrincipalIds": ["consumer"]}, {"name": "names"}]
    deployment = project.deploy(subscriptions=asked)
    own = deployment.one(SUBSCRIPTIONS, "all")

    assert azure_rights(deployment, "consumer") == {("Azure Service Bus Data Receiver", own.id)}


@check
def an_operator_may_manage_the_topic_and_nothing_beside_it(project: Project) -> None:
    deployment = project.deploy(operatorPrincipalIds=["operator"])
    topic = deployment.one(TOPICS)

    assert azure_rights(deployment, "operator") == {("Azure Service Bus Data Owner", topic.id)}
