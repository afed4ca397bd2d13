targetScope = 'resourceGroup'

metadata name = 'Outbox Relay'
metadata description = 'An outbox in Cosmos DB, a Service Bus topic, and the function app that publishes the outbox to the topic.'

@minLength(1)
@maxLength(32)
@description('Name of this deployment, such as trial or production. Part of resource names and of the tag azd-env-name.')
param environmentName string

@description('Region of every resource.')
param location string = resourceGroup().location

@description('Additional tags for every resource.')
param tags object = {}

// Network

@description('Disable public access, and create private endpoints for Cosmos DB, Service Bus, storage and the app, which connects through a virtual network. Requires serviceBusSku Premium.')
param privateNetworking bool = false

@description('Whether the app\'s own endpoints are reachable from outside the virtual network. The app has no HTTP function; only deployment uses them.')
param functionAppPublicAccess bool = !privateNetworking

@description('Address prefix of the virtual network, at least a /25.')
param addressPrefix string = '10.90.0.0/24'

@description('Distribute resources across the availability zones of the region.')
param zoneRedundant bool = false

// Cosmos DB

@allowed([
  'Serverless'
  'Autoscale'
])
@description('How the Cosmos DB account is billed: per request, or by provisioned throughput that scales up to cosmosMaxThroughput.')
param cosmosCapacityMode string = 'Serverless'

@minValue(1000)
@description('Maximum request units per second of the outbox container with Autoscale, in multiples of 1000.')
param cosmosMaxThroughput int = 4000

@minValue(1000)
@description('Maximum request units per second of the lease container with Autoscale, in multiples of 1000. A page of changes takes about 11: 1000 are enough for 90 pages a second, which ten busy physical partitions read (docs/capacity.md). Takes effect when the container is created.')
param cosmosLeaseMaxThroughput int = 1000

@description('Name of an existing Cosmos DB account to use instead of a new one, such as a restored one, or that of another deployment. The database and the containers that it lacks are created in it; the account stays as it is. cosmosCapacityMode must be its own.')
param existingCosmosAccount string = ''

@description('Resource group of existingCosmosAccount.')
param existingCosmosResourceGroup string = resourceGroup().name

@description('A second region for Cosmos DB to fail over to; empty for none. Not available with Serverless.')
param cosmosSecondaryLocation string = ''

@allowed([
  'Continuous7Days'
  'Continuous30Days'
])
@description('Retention of continuous backup, within which the account can be restored to any second. The 7-day tier is free of charge.')
param cosmosBackupTier string = 'Continuous7Days'
param cosmosDatabase string = 'outbox'
param cosmosContainer string = 'data'
param cosmosLeaseContainer string = 'leases'
param cosmosQuarantineContainer string = 'quarantine'

@description('The streams of relay.toml (docs/deployment.md#with-relaytoml): an outbox that is read for a destination. Each has a name, and optionally the database, container, leaseContainer and quarantineContainer of its outbox (defaults: those above), or the feed and shards of an outbox in SQL. The quarantine of a stream is called quarantine-<stream>.')
param streams array = [
  {
    name: 'default'
  }
]

@allowed([
  1
  2
])
@description('2 allows partition keys of 2048 bytes. 1 allows 101 bytes; use it only for existing containers that were created without a version, which cannot be changed.')
param cosmosPartitionKeyVersion int = 2

@description('Lock the lease and quarantine containers against deletion. Requires the permission Microsoft.Authorization/locks/write, which Owner and User Access Administrator have.')
param lockContainers bool = true

// Service Bus

@allowed([
  'Standard'
  'Premium'
])
@description('Tier of the Service Bus namespace. It cannot be changed later.')
param serviceBusSku string = 'Standard'

@allowed([
  1
  2
  4
  8
  16
])
@description('Messaging units of a Premium namespace.')
param serviceBusMessagingUnits int = 1
param serviceBusTopic string = 'domain-events'

@description('The topics and queues that relay.toml names (docs/deployment.md#with-relaytoml). Each has a name, and optionally kind (topic or queue), entity (its own name; default: serviceBusTopic), connection (default: SERVICEBUS) and duplicateWindow (default: duplicateDetectionWindow).')
param destinations array = [
  {
    name: 'default'
  }
]

@description('Name of an existing Service Bus namespace to use instead of a new one. The topic and its subscriptions are created in it; the namespace stays as it is. serviceBusSku must be its tier.')
param existingServiceBusNamespace string = ''

@description('Resource group of existingServiceBusNamespace.')
param existingServiceBusResourceGroup string = resourceGroup().name

@description('The namespaces of destinations with another connection than SERVICEBUS. Each exists, and has the connection, its name, and optionally resourceGroup (default: that of this deployment) and sku (default: serviceBusSku).')
param otherNamespaces array = []

@description('ISO 8601 duration, PT20S to P7D, within which Service Bus drops a message with an id that it has already accepted. Make it longer than the longest outage after which the relay retries. Service Bus keeps every id for that time and compares each message with them, which takes space and throughput of the topic.')
param duplicateDetectionWindow string = 'P1D'

@description('Maximum topic size in megabytes: 1024 to 5120 on Standard (for each of the 16 partitions), up to 81920 on Premium.')
param topicMaxSizeInMegabytes int = 5120

@description('ISO 8601 duration after which a message that no consumer has settled is dead-lettered.')
param messageTimeToLive string = 'P14D'

@description('Maximum message size in kilobytes, on Premium.')
param maxMessageSizeInKilobytes int = 1024

@description('Subscriptions. Each has a name, and optionally a destination (the topic by its name in relay.toml; default: default), an action (the only event to receive; default: every event) or a filter (an SQL filter of Service Bus, such as type = \'order\'), maxDeliveryCount (10), lockDuration (PT1M), messageTimeToLive and receiverPrincipalIds (consumers that may receive from this subscription).')
param subscriptions array = [
  {
    name: 'all'
  }
]

@description('Principal ids of the consumers of each queue, by the name of the destination, such as { billing: [id] }.')
param queueReceivers object = {}

// The relay: docs/settings.md

param relayEventType string = 'domainEvent'
param relayMaxItems int = 1000
param relayPollDelayMs int = 500
param relayPipelined bool = true
// 0 for the default, which depends on relayPipelined.
param relaySenders int = 0
param relaySendTimeoutS int = 30

@description('Seconds before an attempt at a batch of documents ends. Must be less than functionTimeout in host.json.')
param relayAttemptTimeoutS int = 480

@allowed([
  'skip'
  'park'
  'block'
])
@description('What happens to later events of a partition key when one of its events can never be sent: skip publishes them, park quarantines them until the first is released, block makes them wait.')
param relayOnPoison string = 'skip'

@allowed([
  'plain'
  'cloudevents'
])
param relayMessageFormat string = 'plain'

@description('The source of CloudEvents, such as /contacts. Only with relayMessageFormat cloudevents.')
param relayCloudEventsSource string = ''

@allowed([
  'quarantine'
  'claim-check'
])
@description('What becomes of an event that is larger than its topic or queue takes: it is quarantined, or its content goes into a storage account that is then deployed, and a message that names it takes its place (docs/large-events.md).')
param relayLarge string = 'quarantine'

@description('The container with the contents of large events.')
param relayBlobContainer string = 'large-events'

@minValue(1)
@description('Days after which the content of a large event is deleted. It must be more than the longest time to live of a message and deadLettersKeptInDays together.')
param largeEventsKeptInDays int = 60

@minValue(0)
@description('Days within which your consumers\' dead letters are settled. Service Bus keeps them without a limit; the content of a large event has one.')
param deadLettersKeptInDays int = 30

@description('Settings of an outbox in SQL that the app reads in addition to the one in Cosmos DB: SQL, without a password, and optionally SQL_FEED, SQL_SHARDS and SQL_CLAIM_S (docs/sql.md#on-azure-functions). The database, and the rights of the app in it, are yours to create.')
param sqlOutbox object = {}

@allowed([
  512
  2048
  4096
])
@description('Memory of an instance of the function app in megabytes. About one core comes with 2048.')
param instanceMemoryMB int = 2048

@minValue(1)
@maxValue(1000)
@description('Maximum number of instances. Instances beyond the number of physical partitions of the outbox stay idle.')
param maximumInstanceCount int = 40

@minValue(0)
@description('Number of always-ready instances. With 0, the first event after an idle period waits for a cold start, and a Python app with a Cosmos DB trigger does not always scale from zero (azure-functions-host issue 11308). zoneRedundant requires 2.')
param alwaysReadyInstances int = 1

@description('Replace instances in batches when the app changes, so that running attempts finish. In preview, and not in every region. Otherwise all instances restart at once.')
param rollingUpdates bool = false

// People and services

@description('Principal ids of the services that write the outbox.')
param writerPrincipalIds array = []

@description('Let these services delete and patch items too. Otherwise they can read, create, replace and upsert: an event that is deleted before it is published is lost.')
param writersMayDelete bool = false

@description('Principal ids of operators, who run python -m relay check, smoke, quarantine and replay.')
param operatorPrincipalIds array = []

@allowed([
  'User'
  'Group'
  'ServicePrincipal'
])
@description('Type of the principals in operatorPrincipalIds.')
param operatorPrincipalType string = 'User'

@description('A trial, which nobody watches: it may be deployed without operatorEmails and runbook.')
param trial bool = false

@description('E-mail addresses that receive alerts.')
param operatorEmails array = []

@description('Address of your copy of docs/runbook.md. Each alert links to its section there.')
param runbook string = 'docs/runbook.md'

@description('Alert thresholds to override, by name. The defaults are: lagSeconds (300), unpublishedSeconds (300), headroomHours (24), quarantined (0), failedAttempts (5), leaseWarnings (10), deadLetters (0), throttledRequests (100), activeMessages (1000), connections (4000), topicSizePercent (60).')
param alertThresholds object = {}

@minValue(30)
@maxValue(730)
@description('Days that the workspace keeps logs and metrics.')
param logRetentionInDays int = 30

@minValue(-1)
@description('Daily quota of logs and metrics in gigabytes; -1 for no limit. Telemetry beyond it is dropped until the next day, and alerts on it do not fire.')
param dailyLogQuotaInGigabytes int = 5

@description('Drop the spans that the Functions host exports for its own successful requests to Cosmos DB and to its storage account, before the workspace stores and bills them. A poll of the change feed is one: 0.8 million a day with four physical partitions. An existing workspace is left as it is.')
param dropHostSpans bool = true

@description('Name of an existing Log Analytics workspace for logs, metrics and Application Insights instead of a new one. It stays as it is. Alerts on queries count everything in it, also what other relays report.')
param existingWorkspace string = ''

@description('Resource group of existingWorkspace.')
param existingWorkspaceResourceGroup string = resourceGroup().name

@description('Name of an existing Application Insights to use instead of a new one. It must be that of existingWorkspace, which alerts query.')
param existingApplicationInsights string = ''

@description('Resource group of existingApplicationInsights.')
param existingApplicationInsightsResourceGroup string = resourceGroup().name

@description('Export five-minute summaries of Cosmos DB requests (DataPlaneRequests5M, in preview), so that the alert silent detects writes to the outbox that are not published.')
param summarizeWrites bool = false

// Names are computed here, not taken from module outputs, so that what-if can evaluate every module.
var resourceToken = toLower(uniqueString(subscription().id, resourceGroup().id, environmentName))
var allTags = union({ 'azd-env-name': environmentName, application: 'outbox-relay' }, tags)
var identityName = 'id-relay-${resourceToken}'
var identityId = resourceId('Microsoft.ManagedIdentity/userAssignedIdentities', identityName)
var storageName = 'strelay${resourceToken}'
var cosmosName = empty(existingCosmosAccount) ? 'cosmos-relay-${resourceToken}' : existingCosmosAccount
var cosmosGroup = empty(existingCosmosAccount) ? resourceGroup().name : existingCosmosResourceGroup
var serviceBusName = empty(existingServiceBusNamespace) ? 'sbns-relay-${resourceToken}' : existingServiceBusNamespace
var serviceBusGroup = empty(existingServiceBusNamespace) ? resourceGroup().name : existingServiceBusResourceGroup
var existingWorkspaceId = empty(existingWorkspace) ? '' : resourceId(existingWorkspaceResourceGroup, 'Microsoft.OperationalInsights/workspaces', existingWorkspace)
var functionAppName = 'func-relay-${resourceToken}'
var networkName = 'vnet-relay-${resourceToken}'
var largeEventsName = 'stlarge${resourceToken}'
var deploymentContainer = 'app-package'
// ISO 8601 to seconds. The relay's setting is derived from the topic's window, so that the two cannot differ.
var duplicateDetectionSeconds = dateTimeToEpoch(dateTimeAdd('1970-01-01T00:00:00Z', duplicateDetectionWindow, 'yyyy-MM-ddTHH:mm:ssZ'))

// Every container by its stream: relay/config/streams.py has the names.
var inCosmos = filter(streams, each => empty(each.?feed))
var cosmosStreams = map(empty(inCosmos) ? fail('streams has no outbox in Cosmos DB: deploy sql.bicep') : inCosmos, each => {
  name: each.name
  functionName: each.name == 'default' ? 'relay' : 'relay_${replace(each.name, '-', '_')}'
  database: each.?database ?? cosmosDatabase
  container: each.?container ?? cosmosContainer
  leaseContainer: each.?leaseContainer ?? cosmosLeaseContainer
  quarantineContainer: '${each.?quarantineContainer ?? cosmosQuarantineContainer}${each.name == 'default' ? '' : '-${each.name}'}'
})
// union() leaves each value in once.
var databases = union([cosmosDatabase], map(cosmosStreams, each => each.database))
var dataPaths = union(map(cosmosStreams, each => 'dbs/${each.database}/colls/${each.container}'), [])
var leasePaths = union(map(cosmosStreams, each => 'dbs/${each.database}/colls/${each.leaseContainer}'), [])
var quarantinePaths = union(map(cosmosStreams, each => 'dbs/${each.database}/colls/${each.quarantineContainer}'), [])

// Every namespace, the app's own first.
var namespaces = concat([
  {
    connection: 'SERVICEBUS'
    name: serviceBusName
    group: serviceBusGroup
    sku: allowedSku
    isNew: empty(existingServiceBusNamespace)
  }
], map(otherNamespaces, each => {
  connection: each.connection
  name: each.name
  group: each.?resourceGroup ?? resourceGroup().name
  sku: (privateNetworking && (each.?sku ?? serviceBusSku) != 'Premium') ? fail('privateNetworking needs sku Premium of otherNamespaces: ${each.name}') : (each.?sku ?? serviceBusSku)
  isNew: false
}))
var strayed = filter(destinations, each => !contains(map(namespaces, namespace => namespace.connection), each.?connection ?? 'SERVICEBUS'))
var allowedDestinations = empty(strayed) ? destinations : fail('otherNamespaces lacks the connection of ${join(map(strayed, each => each.name), ', ')}')
// For alerts and the workbook.
var everyWatched = map(namespaces, each => {
  suffix: each.connection == 'SERVICEBUS' ? '' : '-${replace(toLower(each.connection), '_', '-')}'
  id: resourceId(each.group, 'Microsoft.ServiceBus/namespaces', each.name)
  entities: map(filter(allowedDestinations, destination => (destination.?connection ?? 'SERVICEBUS') == each.connection), destination => destination.?entity ?? serviceBusTopic)
  capacityInMegabytes: topicMaxSizeInMegabytes * (each.sku == 'Standard' ? 16 : 1)
})
var watchedNamespaces = filter(everyWatched, each => !empty(each.entities))
var otherAddresses = toObject(otherNamespaces, each => '${each.connection}__fullyQualifiedNamespace', each => replace(messaging[0].outputs.fullyQualifiedNamespace, serviceBusName, each.name))
var identitiesOfOthers = union(toObject(otherNamespaces, each => '${each.connection}__credential', each => 'managedidentity'), toObject(otherNamespaces, each => '${each.connection}__clientId', each => identity.outputs.clientId))

// A content has to outlive its message, wherever that waits.
var claimCheck = relayLarge == 'claim-check'
var timesToLive = concat([messageTimeToLive], map(subscriptions, entry => entry.?messageTimeToLive ?? messageTimeToLive))
var secondsOfADay = 86400
var neededSeconds = max(map(timesToLive, each => dateTimeToEpoch(dateTimeAdd('1970-01-01T00:00:00Z', each, 'yyyy-MM-ddTHH:mm:ssZ')))) + deadLettersKeptInDays * secondsOfADay
var allowedKeptInDays = (claimCheck && largeEventsKeptInDays * secondsOfADay <= neededSeconds) ? fail('largeEventsKeptInDays is ${largeEventsKeptInDays}: set more days than the longest time to live of a message and deadLettersKeptInDays (${deadLettersKeptInDays}) together') : largeEventsKeptInDays
var readers = union(flatten(map(subscriptions, entry => entry.?receiverPrincipalIds ?? [])), flatten(map(items(queueReceivers), entry => entry.value)))
// The name of a private endpoint has at most 64 characters, that of a namespace 50.
var namespaceTargets = map(otherNamespaces, each => {
  name: length(each.name) > 45 ? 'servicebus-${uniqueString(each.name)}' : each.name
  id: resourceId(each.?resourceGroup ?? resourceGroup().name, 'Microsoft.ServiceBus/namespaces', each.name)
  groupId: 'namespace'
  zoneName: 'privatelink.servicebus.windows.net'
})
var largeTargets = claimCheck ? [
  {
    name: 'large-events'
    id: resourceId('Microsoft.Storage/storageAccounts', largeEventsName)
    groupId: 'blob'
    zoneName: 'privatelink.blob.${environment().suffixes.storage}'
  }
] : []
var otherTargets = privateNetworking ? concat(namespaceTargets, largeTargets) : []
var largeSettings = claimCheck ? {
  RELAY_LARGE: relayLarge
  RELAY_BLOB_CONTAINER: relayBlobContainer
  BLOBS__serviceUri: largeEvents!.outputs.blobEndpoint
} : {}
var largeIdentity = claimCheck ? {
  BLOBS__credential: 'managedidentity'
  BLOBS__clientId: identity.outputs.clientId
} : {}

// Those of the app that python -m relay needs as well: an operator's release or replay sends events as the app does.
var sharedSettings = union({
  COSMOS__accountEndpoint: cosmosContainers[0].outputs.endpoint
  COSMOS_DATABASE: cosmosDatabase
  COSMOS_CONTAINER: cosmosContainer
  COSMOS_LEASE_CONTAINER: cosmosLeaseContainer
  COSMOS_QUARANTINE_CONTAINER: cosmosQuarantineContainer
  SERVICEBUS__fullyQualifiedNamespace: messaging[0].outputs.fullyQualifiedNamespace
  SERVICEBUS_TOPIC: serviceBusTopic
  RELAY_EVENT_TYPE: relayEventType
  RELAY_DUPLICATE_WINDOW_S: string(duplicateDetectionSeconds)
  RELAY_ON_POISON: relayOnPoison
  RELAY_MESSAGE_FORMAT: relayMessageFormat
  RELAY_CLOUDEVENTS_SOURCE: relayCloudEventsSource
}, otherAddresses, largeSettings)
var serverless = cosmosCapacityMode == 'Serverless'

// Service Bus has private endpoints on Premium only. A serverless account has one region.
var applicationInsightsName = empty(existingApplicationInsights) ? 'appi-relay-${resourceToken}' : existingApplicationInsights
var allowedApplicationInsights = (!empty(existingApplicationInsights) && empty(existingWorkspace)) ? fail('existingApplicationInsights needs existingWorkspace, its own: alerts would query a workspace that gets none of its telemetry') : applicationInsightsName
var allowedSku = (privateNetworking && serviceBusSku != 'Premium') ? fail('privateNetworking needs serviceBusSku Premium: Standard has no private endpoints, and its public access cannot be closed') : serviceBusSku
var allowedEmails = (empty(operatorEmails) && !trial) ? fail('operatorEmails is empty: nobody would learn of an alert. Set at least one address, or trial') : operatorEmails
var allowedRunbook = (!startsWith(runbook, 'https://') && !trial) ? fail('runbook is \'${runbook}\', to which no alert can link: set the address, with https://, where operators read your copy of docs/runbook.md, or set trial') : runbook
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
    applicationInsightsName: allowedApplicationInsights
    newApplicationInsights: empty(existingApplicationInsights)
    applicationInsightsGroup: empty(existingApplicationInsights) ? resourceGroup().name : existingApplicationInsightsResourceGroup
    location: location
    tags: allTags
    existingWorkspaceId: existingWorkspaceId
    retentionInDays: logRetentionInDays
    dailyQuotaInGigabytes: dailyLogQuotaInGigabytes
    dropHostSpans: dropHostSpans
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

module cosmos 'modules/cosmos.bicep' = if (empty(existingCosmosAccount)) {
  name: 'cosmos'
  params: {
    name: cosmosName
    location: location
    tags: allTags
    capacityMode: cosmosCapacityMode
    secondaryLocation: allowedSecondaryLocation
    zoneRedundant: zoneRedundant
    backupTier: cosmosBackupTier
    publicAccess: !privateNetworking
  }
}

@batchSize(1)
module cosmosContainers 'modules/cosmos-containers.bicep' = [for database in databases: {
  name: database == cosmosDatabase ? 'cosmos-containers-${resourceToken}' : 'cosmos-containers-${uniqueString(database)}-${resourceToken}'
  scope: resourceGroup(cosmosGroup)
  params: {
    accountName: cosmosName
    database: database
    dataContainers: union(map(filter(cosmosStreams, each => each.database == database), each => each.container), [])
    leaseContainers: union(map(filter(cosmosStreams, each => each.database == database), each => each.leaseContainer), [])
    quarantineContainers: union(map(filter(cosmosStreams, each => each.database == database), each => each.quarantineContainer), [])
    capacityMode: cosmosCapacityMode
    maxThroughput: cosmosMaxThroughput
    leaseMaxThroughput: cosmosLeaseMaxThroughput
    partitionKeyVersion: cosmosPartitionKeyVersion
    lockContainers: lockContainers
  }
  dependsOn: [
    cosmos
  ]
}]

module cosmosAccess 'modules/cosmos-access.bicep' = {
  name: 'cosmos-access-${resourceToken}'
  scope: resourceGroup(cosmosGroup)
  params: {
    accountName: cosmosName
    databases: databases
    dataContainers: dataPaths
    leaseContainers: leasePaths
    quarantineContainers: quarantinePaths
    relayIdentityId: identityId
    relayPrincipalId: identity.outputs.principalId
    writerPrincipalIds: writerPrincipalIds
    writersMayDelete: writersMayDelete
    operatorPrincipalIds: operatorPrincipalIds
  }
  dependsOn: [
    cosmosContainers
  ]
}

module messaging 'modules/messaging.bicep' = [for namespace in namespaces: {
  name: namespace.connection == 'SERVICEBUS' ? 'messaging' : 'messaging-${namespace.name}'
  params: {
    namespaceName: namespace.name
    group: namespace.group
    newNamespace: namespace.isNew
    location: location
    tags: allTags
    resourceToken: resourceToken
    sku: namespace.sku
    messagingUnits: serviceBusMessagingUnits
    publicAccess: !privateNetworking
    connection: namespace.connection
    destinations: allowedDestinations
    topicName: serviceBusTopic
    duplicateDetectionWindow: duplicateDetectionWindow
    maxSizeInMegabytes: topicMaxSizeInMegabytes
    messageTimeToLive: messageTimeToLive
    maxMessageSizeInKilobytes: maxMessageSizeInKilobytes
    subscriptions: subscriptions
    queueReceivers: queueReceivers
    relayIdentityId: identityId
    relayPrincipalId: identity.outputs.principalId
    operatorPrincipalIds: operatorPrincipalIds
    operatorPrincipalType: operatorPrincipalType
  }
}]

module largeEvents 'modules/large-events.bicep' = if (claimCheck) {
  name: 'large-events'
  params: {
    name: largeEventsName
    location: location
    tags: allTags
    container: relayBlobContainer
    zoneRedundant: zoneRedundant
    publicAccess: !privateNetworking
    keptInDays: allowedKeptInDays
    lockAccount: lockContainers
    workspaceId: monitoring.outputs.workspaceId
    relayIdentityId: identityId
    relayPrincipalId: identity.outputs.principalId
    operatorPrincipalIds: operatorPrincipalIds
    operatorPrincipalType: operatorPrincipalType
    readerPrincipalIds: readers
  }
}

module network 'modules/network.bicep' = if (privateNetworking) {
  name: 'network'
  params: {
    name: networkName
    location: location
    tags: allTags
    addressPrefix: addressPrefix
  }
}

module endpoints 'modules/private-endpoints.bicep' = if (privateNetworking) {
  name: 'endpoints'
  params: {
    resourceToken: resourceToken
    location: location
    tags: allTags
    networkName: networkName
    networkId: network!.outputs.id
    subnetId: network!.outputs.endpointSubnetId
    targets: [
      {
        name: 'cosmos'
        id: cosmosContainers[0].outputs.accountId
        groupId: 'Sql'
        zoneName: 'privatelink.documents.azure.com'
      }
      {
        name: 'servicebus'
        id: messaging[0].outputs.namespaceId
        groupId: 'namespace'
        zoneName: 'privatelink.servicebus.windows.net'
      }
      {
        name: 'storage'
        id: storage.outputs.id
        groupId: 'blob'
        zoneName: 'privatelink.blob.${environment().suffixes.storage}'
      }
    ]
  }
  // Both modules change the account, which allows one change at a time.
  dependsOn: [
    cosmosAccess
  ]
}

// Serially, as some deploy a DNS zone that another endpoint has too.
@batchSize(1)
module otherEndpoints 'modules/private-endpoint.bicep' = [for target in otherTargets: {
  name: 'endpoint-${target.name}'
  params: {
    name: 'pep-${target.name}-${resourceToken}'
    location: location
    tags: allTags
    targetId: target.id
    groupId: target.groupId
    zoneName: target.zoneName
    networkName: networkName
    networkId: network!.outputs.id
    subnetId: network!.outputs.endpointSubnetId
  }
  dependsOn: [
    endpoints
    largeEvents
  ]
}]

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

// After every role assignment and private endpoint: the host starts immediately and needs access.
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
    relaySettings: union(sharedSettings, identitiesOfOthers, largeIdentity, {
      RELAY_MAX_ITEMS: string(relayMaxItems)
      RELAY_POLL_DELAY_MS: string(relayPollDelayMs)
      RELAY_PIPELINED: relayPipelined ? 'true' : 'false'
      RELAY_SENDERS: relaySenders == 0 ? '' : string(relaySenders)
      RELAY_SEND_TIMEOUT_S: string(relaySendTimeoutS)
      RELAY_ATTEMPT_TIMEOUT_S: string(relayAttemptTimeoutS)
    }, empty(sqlOutbox) ? {} : union({ SQL__credential: 'managedidentity', SQL__clientId: identity.outputs.clientId }, sqlOutbox))
    functionNames: map(cosmosStreams, each => each.functionName)
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
    endpoints
    otherEndpoints
  ]
}

module diagnostics 'modules/diagnostics.bicep' = {
  name: 'diagnostics'
  params: {
    workspaceId: monitoring.outputs.workspaceId
    cosmosAccountName: empty(existingCosmosAccount) ? cosmosName : ''
    serviceBusNamespaceName: empty(existingServiceBusNamespace) ? serviceBusName : ''
    storageAccountName: storageName
    functionAppName: functionAppName
    summarizeWrites: summarizeWrites
  }
  dependsOn: [
    cosmos
    messaging
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
    namespaces: watchedNamespaces
    cosmosAccountId: cosmosContainers[0].outputs.accountId
    functionAppId: functionApp.outputs.id
    streams: cosmosStreams
    severalStreams: length(streams) > 1
    operatorEmails: allowedEmails
    runbook: allowedRunbook
    thresholds: alertThresholds
  }
  dependsOn: [
    messaging
  ]
}

module workbook 'modules/workbook.bicep' = {
  name: 'workbook'
  params: {
    location: location
    tags: allTags
    resourceToken: resourceToken
    applicationInsightsId: monitoring.outputs.applicationInsightsId
    workspaceId: monitoring.outputs.workspaceId
    serviceBusNamespaceIds: map(watchedNamespaces, each => each.id)
    entities: flatten(map(watchedNamespaces, each => each.entities))
    cosmosAccountId: cosmosContainers[0].outputs.accountId
    streams: cosmosStreams
    severalStreams: length(streams) > 1
    runbook: allowedRunbook
  }
  dependsOn: [
    messaging
  ]
}

// The output names are those of docs/settings.md, so that python -m relay accepts them unchanged. COSMOS__credential is left
// out: the managed identity exists only on Azure, and operators authenticate with az login.

@description('The settings for python -m relay --env-file and local.settings.json as one object: ARM may change the case of output names, but not of names within an output.')
output settings object = sharedSettings

output COSMOS__accountEndpoint string = sharedSettings.COSMOS__accountEndpoint
output COSMOS_DATABASE string = sharedSettings.COSMOS_DATABASE
output COSMOS_CONTAINER string = sharedSettings.COSMOS_CONTAINER
output COSMOS_LEASE_CONTAINER string = sharedSettings.COSMOS_LEASE_CONTAINER
output COSMOS_QUARANTINE_CONTAINER string = sharedSettings.COSMOS_QUARANTINE_CONTAINER
output SERVICEBUS__fullyQualifiedNamespace string = sharedSettings.SERVICEBUS__fullyQualifiedNamespace
output SERVICEBUS_TOPIC string = sharedSettings.SERVICEBUS_TOPIC
output RELAY_EVENT_TYPE string = sharedSettings.RELAY_EVENT_TYPE
output RELAY_DUPLICATE_WINDOW_S string = sharedSettings.RELAY_DUPLICATE_WINDOW_S
output RELAY_ON_POISON string = sharedSettings.RELAY_ON_POISON
output RELAY_MESSAGE_FORMAT string = sharedSettings.RELAY_MESSAGE_FORMAT
output RELAY_CLOUDEVENTS_SOURCE string = sharedSettings.RELAY_CLOUDEVENTS_SOURCE
output SERVICE_RELAY_NAME string = functionApp.outputs.name
output AZURE_LOCATION string = location
output AZURE_RESOURCE_GROUP string = resourceGroup().name
