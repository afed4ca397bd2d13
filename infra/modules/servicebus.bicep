metadata description = 'The namespace and the topic. What ordering and exactly-once rest on is set here, and can be set only at creation.'

param name string
param location string
param tags object

@allowed([
  'Standard'
  'Premium'
])
param sku string

@description('Messaging units of a Premium namespace: 1, 2, 4, 8 or 16.')
param messagingUnits int
param topicName string

@description('ISO 8601 duration, PT20S to P7D. Every message id is kept this long and each send is looked up among them: a longer window costs throughput and room in the topic; a shorter one lets a longer outage duplicate.')
param duplicateDetectionWindow string

@description('Megabytes. 1024 to 5120 on Standard, where a partitioned topic has 16 times as much; up to 81920 on Premium.')
param maxSizeInMegabytes int

@description('ISO 8601 duration after which a message that nobody has settled expires, into the dead letters.')
param messageTimeToLive string

@description('Kilobytes of the largest message on Premium, 1024 to 102400; Standard takes 256.')
param maxMessageSizeInKilobytes int
param publicAccess bool

@description('Resource id and principal id of the identity of the function app. Names are made of the former, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

@description('Principal ids of those who run python -m relay.')
param operatorPrincipalIds array
param operatorPrincipalType string

// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/integration
var dataSender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var dataOwner = '090c5cfd-751d-490a-894a-3ce6f1109419'

var premium = sku == 'Premium'
var premiumOnly = premium ? { maxMessageSizeInKilobytes: maxMessageSizeInKilobytes } : {}
var standardSku = {
  name: 'Standard'
  tier: 'Standard'
}
var premiumSku = {
  name: 'Premium'
  tier: 'Premium'
  capacity: messagingUnits
}

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: name
  location: location
  tags: tags
  sku: premium ? premiumSku : standardSku
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
    publicNetworkAccess: publicAccess ? 'Enabled' : 'Disabled'
  }
}

// Duplicate detection and partitioning are fixed when the topic is created. A redeployment with another value is
// refused by Service Bus (400, the property of an existing topic cannot be changed) and changes nothing: deploy a
// topic of another name and move the subscribers (infra/README.md). The window itself may be changed at any time.
resource topic 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' = {
  parent: namespace
  name: topicName
  properties: union({
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateDetectionWindow
    // On a partitioned topic duplicates are told by partition key and message id, as the outbox tells documents.
    // Premium has no partitioned topics in an unpartitioned namespace: there, ids must be unique by themselves.
    enablePartitioning: !premium
    // Where a topic is not partitioned (Premium), it hands messages to its subscriptions by several pumps at once, out of
    // order, unless this is set. On a partitioned topic (Standard) it has no effect: there, a session's messages are in
    // order because its id is their partition key, so they are of one partition.
    // https://github.com/Azure/azure-service-bus/issues/56
    supportOrdering: true
    defaultMessageTimeToLive: messageTimeToLive
    maxSizeInMegabytes: maxSizeInMegabytes
    enableBatchedOperations: true
    status: 'Active'
  }, premiumOnly)
}

// On the topic, not on the namespace: the relay sends here and does nothing else.
resource relayMaySend 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(topic.id, relayIdentityId, dataSender)
  scope: topic
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
    principalId: relayPrincipalId
    principalType: 'ServicePrincipal'
  }
}

// To read the topic's properties (python -m relay check) takes the Manage right, which only this role has.
resource operatorsOwnTopic 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in operatorPrincipalIds: {
  name: guid(topic.id, principalId, dataOwner)
  scope: topic
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataOwner)
    principalId: principalId
    principalType: operatorPrincipalType
  }
}]

output id string = namespace.id
output fullyQualifiedNamespace string = replace(replace(namespace.properties.serviceBusEndpoint, 'https://', ''), ':443/', '')
