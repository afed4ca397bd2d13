metadata description = 'The topic. Ordering and deduplication depend on properties that can be set only when it is created.'

import { resourceName } from 'names.bicep'

param namespaceName string

@allowed([
  'Standard'
  'Premium'
])
@description('Tier of the namespace, on which the properties of the topic depend.')
param sku string
param topicName string

@description('ISO 8601 duration, PT20S to P7D, for which Service Bus keeps message ids to detect duplicates. A longer window costs throughput and space in the topic; with a shorter one, retries after a long outage cause duplicates.')
param duplicateDetectionWindow string

@description('Maximum size in megabytes: 1024 to 5120 on Standard (for each of the 16 partitions), up to 81920 on Premium.')
param maxSizeInMegabytes int

@description('ISO 8601 duration after which a message that no consumer has settled is dead-lettered.')
param messageTimeToLive string

@description('Maximum message size in kilobytes on Premium, 1024 to 102400. On Standard it is 256.')
param maxMessageSizeInKilobytes int

@description('Resource id and principal id of the relay\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

@description('Principal ids of operators, who run python -m relay.')
param operatorPrincipalIds array
param operatorPrincipalType string

// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/integration
var dataSender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var dataOwner = '090c5cfd-751d-490a-894a-3ce6f1109419'

var premium = sku == 'Premium'
var premiumOnly = premium ? { maxMessageSizeInKilobytes: maxMessageSizeInKilobytes } : {}

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: namespaceName
}

// Duplicate detection and partitioning are fixed when the topic is created. Service Bus rejects a redeployment with another
// value (400) and changes nothing: deploy a topic with another name and move the subscribers (infra/README.md). The window can
// be changed at any time.
resource topic 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' = {
  parent: namespace
  name: resourceName(topicName)
  properties: union({
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateDetectionWindow
    // A partitioned topic detects duplicates by partition key and message id, which identify a document in the outbox too.
    // A topic on Premium is not partitioned: there, message ids must be unique across partition keys.
    enablePartitioning: !premium
    // A topic that is not partitioned (Premium) forwards messages to its subscriptions concurrently and out of order, unless
    // this is set. It has no effect on a partitioned topic (Standard), where a session's messages are in order because the
    // session id is their partition key.
    // https://github.com/Azure/azure-service-bus/issues/56
    supportOrdering: true
    defaultMessageTimeToLive: messageTimeToLive
    maxSizeInMegabytes: maxSizeInMegabytes
    enableBatchedOperations: true
    status: 'Active'
  }, premiumOnly)
}

// Scoped to the topic, not to the namespace: the relay only sends to this topic.
resource relayMaySend 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(topic.id, relayIdentityId, dataSender)
  scope: topic
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
    principalId: relayPrincipalId
    principalType: 'ServicePrincipal'
  }
}

// Reading the topic's properties (python -m relay check) requires the Manage claim, which only this role has.
resource operatorsOwnTopic 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in operatorPrincipalIds: {
  name: guid(topic.id, principalId, dataOwner)
  scope: topic
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataOwner)
    principalId: principalId
    principalType: operatorPrincipalType
  }
}]
