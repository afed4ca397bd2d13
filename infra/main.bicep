targetScope = 'resourceGroup'

metadata name = 'Outbox Relay'
metadata description = 'An outbox in Cosmos DB, a Service Bus topic, and the function app that relays the one to the other.'

@minLength(1)
@maxLength(32)
@description('Which deployment this is, as trial or production: part of the names and of the tag azd-env-name.')
param environmentName string

@description('Where everything is.')
param location string = resourceGroup().location

@description('Further tags of every resource.')
param tags object = {}

// Network

@description('Private endpoints for Cosmos DB, Service Bus, storage and the app, which reaches them through a virtual network; public access off. Needs serviceBusSku Premium.')
param privateNetworking bool = false

@description('Whether the endpoints of the app itself (it has no HTTP function, only deployment) can be reached from outside the virtual network.')
param functionAppPublicAccess bool = !privateNetworking

@description('Addresses of the virtual network, a /25 at least.')
param addressPrefix string = '10.90.0.0/24'

@description('Spread everything over the availability zones of the region, where it has them.')
param zoneRedundant bool = false

// Cosmos DB

@allowed([
  'Serverless'
  'Autoscale'
])
param cosmosCapacityMode string = 'Serverless'

@minValue(1000)
@description('Most request units a second of the outbox container, in thousands, with Autoscale.')
param cosmosMaxThroughput int = 4000

@description('A second region that Cosmos DB fails over to; empty for none. Not with Serverless.')
param cosmosSecondaryLocation string = ''

@allowed([
  'Continuous7Days'
  'Continuous30Days'
])
@description('How far back the account can be restored to any second. The first tier costs nothing beside the account.')
param cosmosBackupTier string = 'Continuous7Days'
param cosmosDatabase string = 'outbox'
param cosmosContainer string = 'data'
param cosmosLeaseContainer string = 'leases'
param cosmosQuarantineContainer string = 'quarantine'

@allowed([
  1
  2
])
@description('2 takes partition keys of 2048 bytes. 1 takes 101 bytes, and is only for containers that were created without a version: it cannot be changed.')
param cosmosPartitionKeyVersion int = 2

@description('Lock the lease and quarantine containers against deletion. It takes the right Microsoft.Authorization/locks/write, which Owner and User Access Administrator have.')
param lockContainers bool = true

// Service Bus

@allowed([
  'Standard'
  'Premium'
])
param serviceBusSku string = 'Standard'

@allowed([
  1
  2
  4
  8
  16
])
@description('Messaging units, on Premium.')
param serviceBusMessagingUnits int = 1
param serviceBusTopic string = 'domain-events'

@description('ISO 8601 duration, PT20S to P7D: for how long a message sent again is known and dropped. It has to outlast the longest outage after which the relay sends again. The price: every id is kept for so long and each send compared with them, in the room and the throughput of the topic.')
param duplicateDetectionWindow string = 'P1D'

@description('Megabytes: 1024 to 5120 on Standard (times 16, as the topic is partitioned), up to 81920 on Premium.')
param topicMaxSizeInMegabytes int = 5120

@description('ISO 8601 duration for which a message waits for its consumer before it goes to the dead letters.')
param messageTimeToLive string = 'P14D'

@description('Kilobytes of the largest message, on Premium.')
param maxMessageSizeInKilobytes int = 1024

@description('The subscriptions: name, and if wanted action (one event to subscribe to, else all), maxDeliveryCount (10), lockDuration (PT1M), messageTimeToLive, receiverPrincipalIds (the consumers, each may receive from this subscription and no other).')
param subscriptions array = [
  {
    name: 'all'
  }
  {
    name: 'names'
    action: 'ContactNameUpdatedEvent'
  }
]

// The relay: docs/settings.md

param relayEventType string = 'domainEvent'
param relayMaxItems int = 1000
param relayPollDelayMs int = 500
param relaySenders int = 32
param relaySendTimeoutS int = 30

@description('Seconds for one attempt at a batch, less than functionTimeout of host.json.')
param relayAttemptTimeoutS int = 480

@allowed([
  'skip'
  'park'
  'block'
])
@description('What becomes of a partition key\'s later events when one can never be sent: they go on, are set aside too until it is released, or wait.')
param relayOnPoison string = 'skip'

@allowed([
  'plain'
  'cloudevents'
])
param relayMessageFormat string = 'plain'

@description('The source of CloudEvents, as /contacts; only with relayMessageFormat cloudevents.')
param relayCloudEventsSource string = ''

@allowed([
  512
  2048
  4096
])
param instanceMemoryMB int = 2048

@minValue(1)
@maxValue(1000)
@description('More instances than the outbox has physical partitions would have nothing to do.')
param maximumInstanceCount int = 40

@minValue(0)
@description('Instances that never sleep. With 0 the first event after a quiet time waits for a cold start, and a Python app with a Cosmos DB trigger does not always wake (azure-functions-host issue 11308); zoneRedundant wants 2.')
param alwaysReadyInstances int = 1

@description('Replace instances batch by batch when the app changes, letting attempts under way finish. In preview, and not in every region; without it, all instances restart at once.')
param rollingUpdates bool = false

// People and services

@description('Principal ids of the services that write the outbox.')
param writerPrincipalIds array = []

@description('Principal ids of those who run python -m relay check, smoke, quarantine and replay.')
param operatorPrincipalIds array = []

@allowed([
  'User'
  'Group'
  'ServicePrincipal'
])
param operatorPrincipalType string = 'User'

@description('Who is told of alerts.')
param operatorEmails array = []

@description('Where the operators read docs/runbook.md, as the address of your copy: each alert gives it with its own section.')
param runbook string = 'docs/runbook.md'

@description('Thresholds of alerts that differ from the defaults: lagSeconds (300), headroomHours (24), quarantined (0), failedAttempts (5), leaseWarnings (10), deadLetters (0), throttledRequests (100), activeMessages (1000), connections (4000), topicSizePercent (60).')
param alertThresholds object = {}

@minValue(30)
@maxValue(730)
param logRetentionInDays int = 30

@minValue(-1)
@description('Gigabytes of logs and metrics a day; what comes after them is dropped until the next day, and alerts on it are blind. -1 for no limit.')
param dailyLogQuotaInGigabytes int = 5

@description('Let Cosmos DB sum up its requests (DataPlaneRequests5M, in preview), so that the alert silent sees an outbox that is written to and not relayed.')
param summarizeWrites bool = false

// Names that modules are told, and do not hear from one another: what-if can then look into every module.
var resourceToken = toLower(uniqueString(subscription().id, resourceGroup().id, environmentName))
var allTags = union({ 'azd-env-name': environmentName, application: 'outbox-relay' }, tags)
var identityName = 'id-relay-${resourceToken}'
var identityId = resourceId('Microsoft.ManagedIdentity/userAssignedIdentities', identityName)
var storageName = 'strelay${resourceToken}'
var cosmosName = 'cosmos-relay-${resourceToken}'
var serviceBusName = 'sbns-relay-${resourceToken}'
var functionAppName = 'func-relay-${resourceToken}'
var networkName = 'vnet-relay-${resourceToken}'
var deploymentContainer = 'app-package'
// ISO 8601 to seconds. The relay is told the window of the topic itself, so that the two cannot differ.
var duplicateDetectionSeconds = dateTimeToEpoch(dateTimeAdd('1970-01-01T00:00:00Z', duplicateDetectionWindow, 'yyyy-MM-ddTHH:mm:ssZ'))
var serverless = cosmosCapacityMode == 'Serverless'

// Private endpoints of Service Bus exist on Premium alone; serverless accounts have one region.
var allowedSku = (privateNetworking && serviceBusSku != 'Premium') ? fail('privateNetworking needs serviceBusSku Premium: Standard has no private endpoints, and its public access cannot be closed') : serviceBusSku
var allowedSecondaryLocation = (serverless && !empty(cosmosSecondaryLocation)) ? fail('cosmosSecondaryLocation needs cosmosCapacityMode Autoscale: a serverless account has one region') : cosmosSecondaryLocation

module identity 'modules/identity.bicep' = {
  name: 'identity'
  params: {
    name: identityName
    location: location
    tags: allTags
  }
}

module monitoring 'modules/monitoring.bicep' = {
  name: 'monitoring'
  params: {
    workspaceName: 'log-relay-${resourceToken}'
    applicationInsightsName: 'appi-relay-${resourceToken}'
    location: location
    tags: allTags
    retentionInDays: logRetentionInDays
    dailyQuotaInGigabytes: dailyLogQuotaInGigabytes
    relayIdentityId: identityId
    relayPrincipalId: identity.outputs.principalId
  }
}

module storage 'modules/storage.bicep' = {
  name: 'storage'
  params: {
    name: storageName
    location: location
    tags: allTags
    deploymentContainer: deploymentContainer
    zoneRedundant: zoneRedundant
    publicAccess: !privateNetworking
    relayIdentityId: identityId
    relayPrincipalId: identity.outputs.principalId
  }
}

module cosmos 'modules/cosmos.bicep' = {
  name: 'cosmos'
  params: {
    name: cosmosName
    location: location
    tags: allTags
    database: cosmosDatabase
    dataContainer: cosmosContainer
    leaseContainer: cosmosLeaseContainer
    quarantineContainer: cosmosQuarantineContainer
    capacityMode: cosmosCapacityMode
    maxThroughput: cosmosMaxThroughput
    secondaryLocation: allowedSecondaryLocation
    zoneRedundant: zoneRedundant
    backupTier: cosmosBackupTier
    publicAccess: !privateNetworking
    partitionKeyVersion: cosmosPartitionKeyVersion
    lockContainers: lockContainers
  }
}

module cosmosAccess 'modules/cosmos-access.bicep' = {
  name: 'cosmos-access'
  params: {
    accountName: cosmosName
    database: cosmosDatabase
    dataContainer: cosmosContainer
    leaseContainer: cosmosLeaseContainer
    quarantineContainer: cosmosQuarantineContainer
    relayIdentityId: identityId
    relayPrincipalId: identity.outputs.principalId
    writerPrincipalIds: writerPrincipalIds
    operatorPrincipalIds: operatorPrincipalIds
  }
  dependsOn: [
    cosmos
  ]
}

module serviceBus 'modules/servicebus.bicep' = {
  name: 'servicebus'
  params: {
    name: serviceBusName
    location: location
    tags: allTags
    sku: allowedSku
    messagingUnits: serviceBusMessagingUnits
    topicName: serviceBusTopic
    duplicateDetectionWindow: duplicateDetectionWindow
    maxSizeInMegabytes: topicMaxSizeInMegabytes
    messageTimeToLive: messageTimeToLive
    maxMessageSizeInKilobytes: maxMessageSizeInKilobytes
    publicAccess: !privateNetworking
    relayIdentityId: identityId
    relayPrincipalId: identity.outputs.principalId
    operatorPrincipalIds: operatorPrincipalIds
    operatorPrincipalType: operatorPrincipalType
  }
}

// One after another: Service Bus refuses changes of one topic that overlap (409, subcode 40901).
// https://learn.microsoft.com/azure/service-bus-messaging/service-bus-resource-manager-exceptions
@batchSize(1)
module topicSubscriptions 'modules/subscription.bicep' = [for entry in subscriptions: {
  name: 'subscription-${entry.name}'
  params: {
    namespaceName: serviceBusName
    topicName: serviceBusTopic
    name: entry.name
    action: entry.?action ?? ''
    maxDeliveryCount: entry.?maxDeliveryCount ?? 10
    lockDuration: entry.?lockDuration ?? 'PT1M'
    messageTimeToLive: entry.?messageTimeToLive ?? messageTimeToLive
    receiverPrincipalIds: entry.?receiverPrincipalIds ?? []
  }
  dependsOn: [
    serviceBus
  ]
}]

module network 'modules/network.bicep' = if (privateNetworking) {
  name: 'network'
  params: {
    name: networkName
    location: location
    tags: allTags
    addressPrefix: addressPrefix
  }
}

module cosmosEndpoint 'modules/private-endpoint.bicep' = if (privateNetworking) {
  name: 'endpoint-cosmos'
  params: {
    name: 'pep-cosmos-${resourceToken}'
    location: location
    tags: allTags
    targetId: cosmos.outputs.id
    groupId: 'Sql'
    zoneName: 'privatelink.documents.azure.com'
    networkName: networkName
    networkId: network!.outputs.id
    subnetId: network!.outputs.endpointSubnetId
  }
  // Both change the account, which lets one at a time.
  dependsOn: [
    cosmosAccess
  ]
}

module serviceBusEndpoint 'modules/private-endpoint.bicep' = if (privateNetworking) {
  name: 'endpoint-servicebus'
  params: {
    name: 'pep-servicebus-${resourceToken}'
    location: location
    tags: allTags
    targetId: serviceBus.outputs.id
    groupId: 'namespace'
    zoneName: 'privatelink.servicebus.windows.net'
    networkName: networkName
    networkId: network!.outputs.id
    subnetId: network!.outputs.endpointSubnetId
  }
}

module storageEndpoint 'modules/private-endpoint.bicep' = if (privateNetworking) {
  name: 'endpoint-storage'
  params: {
    name: 'pep-storage-${resourceToken}'
    location: location
    tags: allTags
    targetId: storage.outputs.id
    groupId: 'blob'
    zoneName: 'privatelink.blob.${environment().suffixes.storage}'
    networkName: networkName
    networkId: network!.outputs.id
    subnetId: network!.outputs.endpointSubnetId
  }
}

module functionAppEndpoint 'modules/private-endpoint.bicep' = if (privateNetworking) {
  name: 'endpoint-function-app'
  params: {
    name: 'pep-function-app-${resourceToken}'
    location: location
    tags: allTags
    targetId: functionApp.outputs.id
    groupId: 'sites'
    zoneName: 'privatelink.azurewebsites.net'
    networkName: networkName
    networkId: network!.outputs.id
    subnetId: network!.outputs.endpointSubnetId
  }
}

// After every right and every private endpoint: the host starts at once, and would find closed doors.
module functionApp 'modules/functions.bicep' = {
  name: 'function-app'
  params: {
    name: functionAppName
    planName: 'asp-relay-${resourceToken}'
    location: location
    tags: allTags
    identityId: identityId
    identityClientId: identity.outputs.clientId
    storageBlobEndpoint: storage.outputs.blobEndpoint
    deploymentContainer: deploymentContainer
    applicationInsightsConnectionString: monitoring.outputs.applicationInsightsConnectionString
    relaySettings: {
      COSMOS__accountEndpoint: cosmos.outputs.endpoint
      COSMOS_DATABASE: cosmosDatabase
      COSMOS_CONTAINER: cosmosContainer
      COSMOS_LEASE_CONTAINER: cosmosLeaseContainer
      COSMOS_QUARANTINE_CONTAINER: cosmosQuarantineContainer
      SERVICEBUS__fullyQualifiedNamespace: serviceBus.outputs.fullyQualifiedNamespace
      SERVICEBUS_TOPIC: serviceBusTopic
      RELAY_EVENT_TYPE: relayEventType
      RELAY_MAX_ITEMS: string(relayMaxItems)
      RELAY_POLL_DELAY_MS: string(relayPollDelayMs)
      RELAY_SENDERS: string(relaySenders)
      RELAY_SEND_TIMEOUT_S: string(relaySendTimeoutS)
      RELAY_ATTEMPT_TIMEOUT_S: string(relayAttemptTimeoutS)
      RELAY_DUPLICATE_WINDOW_S: string(duplicateDetectionSeconds)
      RELAY_ON_POISON: relayOnPoison
      RELAY_MESSAGE_FORMAT: relayMessageFormat
      RELAY_CLOUDEVENTS_SOURCE: relayCloudEventsSource
    }
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
    alwaysReadyInstances: alwaysReadyInstances
    rollingUpdates: rollingUpdates
    zoneRedundant: zoneRedundant
    publicAccess: functionAppPublicAccess
    integrationSubnetId: privateNetworking ? network!.outputs.integrationSubnetId : ''
  }
  dependsOn: [
    cosmosAccess
    topicSubscriptions
    cosmosEndpoint
    serviceBusEndpoint
    storageEndpoint
  ]
}

module diagnostics 'modules/diagnostics.bicep' = {
  name: 'diagnostics'
  params: {
    workspaceId: monitoring.outputs.workspaceId
    cosmosAccountName: cosmosName
    serviceBusNamespaceName: serviceBusName
    storageAccountName: storageName
    functionAppName: functionAppName
    summarizeWrites: summarizeWrites
  }
  dependsOn: [
    cosmos
    serviceBus
    storage
    functionApp
  ]
}

module alerts 'modules/alerts.bicep' = {
  name: 'alerts'
  params: {
    location: location
    tags: allTags
    resourceToken: resourceToken
    workspaceId: monitoring.outputs.workspaceId
    serviceBusNamespaceId: serviceBus.outputs.id
    topicName: serviceBusTopic
    cosmosAccountId: cosmos.outputs.id
    functionAppId: functionApp.outputs.id
    outboxContainer: cosmosContainer
    topicCapacityInMegabytes: topicMaxSizeInMegabytes * (serviceBusSku == 'Standard' ? 16 : 1)
    operatorEmails: operatorEmails
    runbook: runbook
    thresholds: alertThresholds
  }
}

module workbook 'modules/workbook.bicep' = {
  name: 'workbook'
  params: {
    location: location
    tags: allTags
    resourceToken: resourceToken
    applicationInsightsId: monitoring.outputs.applicationInsightsId
    workspaceId: monitoring.outputs.workspaceId
    serviceBusNamespaceId: serviceBus.outputs.id
    topicName: serviceBusTopic
    cosmosAccountId: cosmos.outputs.id
    outboxContainer: cosmosContainer
    runbook: runbook
  }
}

// For people and tools: the names are those of docs/settings.md, so that python -m relay takes them as they are.
// Without COSMOS__credential, whose managed identity exists only on Azure: an operator is found by az login.

@description('What python -m relay --env-file and local.settings.json take, as one object: ARM may change the case of the outputs\' own names, never of names within an output.')
output settings object = {
  COSMOS__accountEndpoint: cosmos.outputs.endpoint
  COSMOS_DATABASE: cosmosDatabase
  COSMOS_CONTAINER: cosmosContainer
  COSMOS_LEASE_CONTAINER: cosmosLeaseContainer
  COSMOS_QUARANTINE_CONTAINER: cosmosQuarantineContainer
  SERVICEBUS__fullyQualifiedNamespace: serviceBus.outputs.fullyQualifiedNamespace
  SERVICEBUS_TOPIC: serviceBusTopic
  RELAY_EVENT_TYPE: relayEventType
  RELAY_DUPLICATE_WINDOW_S: string(duplicateDetectionSeconds)
  RELAY_ON_POISON: relayOnPoison
  RELAY_MESSAGE_FORMAT: relayMessageFormat
  RELAY_CLOUDEVENTS_SOURCE: relayCloudEventsSource
}

output COSMOS__accountEndpoint string = cosmos.outputs.endpoint
output COSMOS_DATABASE string = cosmosDatabase
output COSMOS_CONTAINER string = cosmosContainer
output COSMOS_LEASE_CONTAINER string = cosmosLeaseContainer
output COSMOS_QUARANTINE_CONTAINER string = cosmosQuarantineContainer
output SERVICEBUS__fullyQualifiedNamespace string = serviceBus.outputs.fullyQualifiedNamespace
output SERVICEBUS_TOPIC string = serviceBusTopic
output RELAY_EVENT_TYPE string = relayEventType
output RELAY_DUPLICATE_WINDOW_S string = string(duplicateDetectionSeconds)
output RELAY_ON_POISON string = relayOnPoison
output RELAY_MESSAGE_FORMAT string = relayMessageFormat
output RELAY_CLOUDEVENTS_SOURCE string = relayCloudEventsSource
output SERVICE_RELAY_NAME string = functionApp.outputs.name
output AZURE_LOCATION string = location
output AZURE_RESOURCE_GROUP string = resourceGroup().name
