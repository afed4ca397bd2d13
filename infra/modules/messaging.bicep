metadata description = 'The topic with its subscriptions, in a new Service Bus namespace or in an existing one.'

@description('Name of the namespace, and of its resource group.')
param namespaceName string
param group string

@description('Whether to create the namespace; otherwise it exists, and stays as it is.')
param newNamespace bool
param location string
param tags object
param resourceToken string

@description('Tier of the namespace: Standard or Premium.')
param sku string
param messagingUnits int
param publicAccess bool
param topicName string
param duplicateDetectionWindow string
param maxSizeInMegabytes int
param messageTimeToLive string
param maxMessageSizeInKilobytes int

@description('As the parameter of main.bicep and sql.bicep.')
param subscriptions array

@description('Resource id and principal id of the relay\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

@description('Principal ids of operators, who run python -m relay.')
param operatorPrincipalIds array
param operatorPrincipalType string

module serviceBus 'servicebus.bicep' = if (newNamespace) {
  name: 'servicebus'
  params: {
    name: namespaceName
    location: location
    tags: tags
    sku: sku
    messagingUnits: messagingUnits
    publicAccess: publicAccess
  }
}

module topic 'topic.bicep' = {
  name: 'topic-${resourceToken}'
  scope: resourceGroup(group)
  params: {
    namespaceName: namespaceName
    sku: sku
    topicName: topicName
    duplicateDetectionWindow: duplicateDetectionWindow
    maxSizeInMegabytes: maxSizeInMegabytes
    messageTimeToLive: messageTimeToLive
    maxMessageSizeInKilobytes: maxMessageSizeInKilobytes
    relayIdentityId: relayIdentityId
    relayPrincipalId: relayPrincipalId
    operatorPrincipalIds: operatorPrincipalIds
    operatorPrincipalType: operatorPrincipalType
  }
  dependsOn: [
    serviceBus
  ]
}

// Deployed serially: Service Bus rejects concurrent changes to one topic (409, subcode 40901).
// https://learn.microsoft.com/azure/service-bus-messaging/service-bus-resource-manager-exceptions
@batchSize(1)
module topicSubscriptions 'subscription.bicep' = [for entry in subscriptions: {
  name: 'subscription-${entry.name}'
  scope: resourceGroup(group)
  params: {
    namespaceName: namespaceName
    topicName: topicName
    name: entry.name
    action: entry.?action ?? ''
    maxDeliveryCount: entry.?maxDeliveryCount ?? 10
    lockDuration: entry.?lockDuration ?? 'PT1M'
    messageTimeToLive: entry.?messageTimeToLive ?? messageTimeToLive
    receiverPrincipalIds: entry.?receiverPrincipalIds ?? []
  }
  dependsOn: [
    topic
  ]
}]

output namespaceId string = topic.outputs.namespaceId
output fullyQualifiedNamespace string = topic.outputs.fullyQualifiedNamespace
