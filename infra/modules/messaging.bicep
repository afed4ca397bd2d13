metadata description = 'The destinations in one Service Bus namespace, a new one or an existing one: topics with their subscriptions, and queues.'

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

@description('The setting that names the namespace: the destinations with this connection are created in it.')
param connection string

@description('Those of every namespace, as the parameter of main.bicep and sql.bicep.')
param destinations array

@description('Of a destination that has none of its own.')
param topicName string
param duplicateDetectionWindow string
param maxSizeInMegabytes int
param messageTimeToLive string
param maxMessageSizeInKilobytes int

@description('As the parameters of main.bicep and sql.bicep.')
param subscriptions array
param queueReceivers object

@description('Resource id and principal id of the relay\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

@description('Principal ids of operators, who run python -m relay.')
param operatorPrincipalIds array
param operatorPrincipalType string

var complete = map(destinations, each => {
  name: each.name
  isQueue: each.?kind == 'queue'
  connection: each.?connection ?? 'SERVICEBUS'
  entity: each.?entity ?? topicName
  duplicateDetectionWindow: each.?duplicateWindow ?? duplicateDetectionWindow
})
var topics = filter(complete, each => each.connection == connection && !each.isQueue)
var queues = filter(complete, each => each.connection == connection && each.isQueue)
var topicNames = toObject(topics, each => each.name, each => each.entity)
var everyTopic = map(filter(complete, each => !each.isQueue), each => each.name)
var everyQueue = map(filter(complete, each => each.isQueue), each => each.name)

// What would be ignored in silence is refused.
var strayed = filter(subscriptions, entry => !contains(everyTopic, entry.?destination ?? 'default'))
var allowedSubscriptions = empty(strayed) ? subscriptions : fail('subscriptions: ${join(map(strayed, entry => entry.name), ', ')} has no topic. Set destination to one of ${join(everyTopic, ', ')}')
var ambiguous = filter(allowedSubscriptions, entry => !empty(entry.?action) && !empty(entry.?filter))
var filteredSubscriptions = empty(ambiguous) ? allowedSubscriptions : fail('subscriptions: ${join(map(ambiguous, entry => entry.name), ', ')} has an action and a filter. Leave the action out, and write it into the filter: sys.Label = \'…\' AND (…)')
var unknownQueues = filter(items(queueReceivers), entry => !contains(everyQueue, entry.key))
var allowedQueueReceivers = empty(unknownQueues) ? queueReceivers : fail('queueReceivers: ${join(map(unknownQueues, entry => entry.key), ', ')} is no queue. The queues are: ${join(everyQueue, ', ')}')

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

module namespaceThere 'namespace.bicep' = {
  name: 'namespace-${uniqueString(namespaceName)}-${resourceToken}'
  scope: resourceGroup(group)
  params: {
    name: namespaceName
  }
  dependsOn: [
    serviceBus
  ]
}

module topicModules 'topic.bicep' = [for each in topics: {
  name: each.name == 'default' ? 'topic-${resourceToken}' : 'topic-${each.name}-${resourceToken}'
  scope: resourceGroup(group)
  params: {
    namespaceName: namespaceName
    sku: sku
    topicName: each.entity
    duplicateDetectionWindow: each.duplicateDetectionWindow
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
}]

module queueModules 'queue.bicep' = [for each in queues: {
  name: 'queue-${each.name}-${resourceToken}'
  scope: resourceGroup(group)
  params: {
    namespaceName: namespaceName
    sku: sku
    queueName: each.entity
    duplicateDetectionWindow: each.duplicateDetectionWindow
    maxSizeInMegabytes: maxSizeInMegabytes
    messageTimeToLive: messageTimeToLive
    maxMessageSizeInKilobytes: maxMessageSizeInKilobytes
    receiverPrincipalIds: allowedQueueReceivers[?each.name] ?? []
    relayIdentityId: relayIdentityId
    relayPrincipalId: relayPrincipalId
    operatorPrincipalIds: operatorPrincipalIds
    operatorPrincipalType: operatorPrincipalType
  }
  dependsOn: [
    serviceBus
  ]
}]

// Deployed serially: Service Bus rejects concurrent changes to one topic (409, subcode 40901).
// https://learn.microsoft.com/azure/service-bus-messaging/service-bus-resource-manager-exceptions
@batchSize(1)
module topicSubscriptions 'subscription.bicep' = [for entry in filter(filteredSubscriptions, entry => contains(topicNames, entry.?destination ?? 'default')): {
  name: contains(entry, 'destination') ? 'subscription-${uniqueString(entry.destination, entry.name)}-${resourceToken}' : 'subscription-${entry.name}'
  scope: resourceGroup(group)
  params: {
    namespaceName: namespaceName
    topicName: topicNames[entry.?destination ?? 'default']
    name: entry.name
    action: entry.?action ?? ''
    filter: entry.?filter ?? ''
    maxDeliveryCount: entry.?maxDeliveryCount ?? 10
    lockDuration: entry.?lockDuration ?? 'PT1M'
    messageTimeToLive: entry.?messageTimeToLive ?? messageTimeToLive
    receiverPrincipalIds: entry.?receiverPrincipalIds ?? []
  }
  dependsOn: [
    topicModules
  ]
}]

output namespaceId string = namespaceThere.outputs.id
output fullyQualifiedNamespace string = namespaceThere.outputs.fullyQualifiedNamespace
