metadata description = 'A queue as a destination of relay.toml. Ordering and deduplication depend on properties that can be set only when it is created.'

import { resourceName } from 'names.bicep'

param namespaceName string

@allowed([
  'Standard'
  'Premium'
])
@description('Tier of the namespace, on which the properties of the queue depend.')
param sku string
param queueName string

@description('ISO 8601 duration, PT20S to P7D, for which Service Bus keeps message ids to detect duplicates.')
param duplicateDetectionWindow string

@description('Maximum size in megabytes: 1024 to 5120 on Standard (for each of the 16 partitions), up to 81920 on Premium.')
param maxSizeInMegabytes int

@description('ISO 8601 duration after which a message that no consumer has settled is dead-lettered.')
param messageTimeToLive string

@description('Maximum message size in kilobytes on Premium, 1024 to 102400. On Standard it is 256.')
param maxMessageSizeInKilobytes int

@description('Principal ids of the consumers of the queue.')
param receiverPrincipalIds array

@description('Resource id and principal id of the relay\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

@description('Principal ids of operators, who run python -m relay.')
param operatorPrincipalIds array
param operatorPrincipalType string

// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/integration
var dataSender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var dataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
var dataOwner = '090c5cfd-751d-490a-894a-3ce6f1109419'

var premium = sku == 'Premium'
var premiumOnly = premium ? { maxMessageSizeInKilobytes: maxMessageSizeInKilobytes } : {}

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: namespaceName
}

// Duplicate detection, sessions and partitioning are fixed when the queue is created: topic.bicep says what they are for, and what
// a redeployment with another value does. No autoDeleteOnIdle, as of subscriptions.
resource queue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = {
  parent: namespace
  name: resourceName(queueName)
  properties: union({
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateDetectionWindow
    requiresSession: true
    enablePartitioning: !premium
    deadLetteringOnMessageExpiration: true
    maxDeliveryCount: 10
    lockDuration: 'PT1M'
    defaultMessageTimeToLive: messageTimeToLive
    maxSizeInMegabytes: maxSizeInMegabytes
    enableBatchedOperations: true
    status: 'Active'
  }, premiumOnly)
}

// Scoped to the queue, not to the namespace: the relay only sends to this queue.
resource relayMaySend 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(queue.id, relayIdentityId, dataSender)
  scope: queue
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
    principalId: relayPrincipalId
    principalType: 'ServicePrincipal'
  }
}

// Reading the queue's properties (python -m relay check) requires the Manage claim, which only this role has.
resource operatorsOwnQueue 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in operatorPrincipalIds: {
  name: guid(queue.id, principalId, dataOwner)
  scope: queue
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataOwner)
    principalId: principalId
    principalType: operatorPrincipalType
  }
}]

resource receiversMayReceive 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in receiverPrincipalIds: {
  name: guid(queue.id, principalId, dataReceiver)
  scope: queue
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReceiver)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]
