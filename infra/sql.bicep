targetScope = 'resourceGroup'

metadata name = 'Outbox Relay for SQL'
metadata description = 'An outbox in Azure Database for PostgreSQL or Azure SQL, a Service Bus topic, and the relay as a worker in Azure Container Apps that publishes the outbox to the topic.'

@minLength(1)
@maxLength(32)
@description('Name of this deployment, such as trial or production. Part of resource names and of the tag azd-env-name.')
param environmentName string

@description('Region of every resource.')
param location string = resourceGroup().location

@description('Additional tags for every resource.')
param tags object = {}

// Network

@description('Disable public access, and create private endpoints for the database and Service Bus, which the worker reaches through a virtual network. Requires serviceBusSku Premium.')
param privateNetworking bool = false

@description('Address prefix of the virtual network, at least a /25.')
param addressPrefix string = '10.90.0.0/24'

@description('Distribute resources across the availability zones of the region. Requires privateNetworking.')
param zoneRedundant bool = false

@description('IPv4 addresses from which the administrator connects to the database, to install the feed. Not with privateNetworking.')
param clientIpAddresses array = []

// The database

@allowed([
  'PostgreSQL'
  'AzureSQL'
])
@description('PostgreSQL: Azure Database for PostgreSQL flexible server. AzureSQL: a logical server with one database.')
param engine string = 'PostgreSQL'

@description('Name of an existing server to use instead of a new one, such as a restored one, or that of another deployment. It stays as it is: its database, its firewall and its administrator are yours.')
param existingDatabaseServer string = ''

@description('Resource group of existingDatabaseServer.')
param existingDatabaseResourceGroup string = resourceGroup().name

@description('Name of the database. It cannot be changed later.')
param database string = 'outbox'

@description('Object id of the Microsoft Entra principal that administers the database. Nobody can log in with a password.')
param administratorObjectId string

@description('Name of that principal: a user\'s principal name, or the name of a group or of an application.')
param administratorName string

@allowed([
  'User'
  'Group'
  'ServicePrincipal'
])
@description('Type of the principal in administratorObjectId.')
param administratorType string = 'User'

@allowed([
  '16'
  '17'
  '18'
])
@description('Major version of PostgreSQL.')
param postgresVersion string = '18'
@description('Size of the PostgreSQL server.')
param postgresSkuName string = 'Standard_B2s'

@allowed([
  'Burstable'
  'GeneralPurpose'
  'MemoryOptimized'
])
@description('The tier of postgresSkuName. zoneRedundant requires another one than Burstable.')
param postgresSkuTier string = 'Burstable'

@minValue(32)
@description('Disk of the PostgreSQL server in gigabytes. It can only grow.')
param postgresStorageInGigabytes int = 32

@minValue(7)
@maxValue(35)
@description('Days within which a PostgreSQL server can be restored to any second.')
param postgresBackupRetentionInDays int = 7

@description('Such as S0 or GP_Gen5_2. zoneRedundant requires one that supports it, such as GP_Gen5_2.')
param azureSqlSkuName string = 'S0'

// The feed

@description('The event table, as it was given to setup_feed: schema.Table.')
param feed string = 'outbox.domain_event'

@minValue(1)
@maxValue(1024)
@description('Number of shards that writers use. To change it, stop the writers and let the relay publish what is there (docs/sql.md#choose-the-number-of-shards).')
param shards int = 1

@description('The streams of relay.toml (docs/deployment.md#with-relaytoml): an outbox that is read for a destination. Each has a name, and optionally the feed and shards of its outbox (defaults: those above).')
param streams array = [
  {
    name: 'default'
  }
]

@minValue(2)
@maxValue(300)
@description('Seconds without a sign of life after which another replica takes over a replica\'s shards.')
param claimSeconds int = 10

// The worker

@description('The image, built from Dockerfile, such as myregistry.azurecr.io/outbox-relay@sha256:…. With the digest, every replica runs the same image; with the tag alone, what the tag names when it starts.')
param image string

@description('Name of the container registry of this resource group that has the image; empty for a public image.')
param registryName string = ''

@minValue(1)
@description('Replicas that always run. With 2, the second takes over within seconds when the first ends. There is no scaling to zero: the worker itself looks for news.')
param minReplicas int = 2

@minValue(1)
@description('Replicas that may run while they are busy. Replicas beyond minReplicas and the number of shards would be idle.')
param maxReplicas int = 2

@description('Cores of a replica.')
param cpu string = '0.5'

@description('Memory of a replica. The Consumption profile has 2 GiB for each core.')
param memory string = '1Gi'

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

@description('ISO 8601 duration, PT20S to P7D, within which Service Bus drops a message with an id that it has already accepted. Make it longer than the longest outage after which the relay retries.')
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

@description('Lock the storage account with the contents of large events against deletion. Requires the permission Microsoft.Authorization/locks/write, which Owner and User Access Administrator have.')
param lockLargeEvents bool = true

// People

@description('Principal ids of operators, who run python -m relay. In the database, they need the rights of the relay too.')
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

@description('Alert thresholds to override, by name: lagSeconds, unpublishedSeconds, restarts, quarantined, failedAttempts, deadLetters, throttledRequests, activeMessages, connections, topicSizePercent. modules/sql-alerts.bicep has the defaults.')
param alertThresholds object = {}

@minValue(30)
@maxValue(730)
@description('Days that the workspace keeps logs and metrics.')
param logRetentionInDays int = 30

@minValue(-1)
@description('Daily quota of logs and metrics in gigabytes; -1 for no limit. Telemetry beyond it is dropped until the next day, and alerts on it do not fire.')
param dailyLogQuotaInGigabytes int = 5

@description('Name of an existing Log Analytics workspace for logs, metrics and Application Insights instead of a new one. It stays as it is. Alerts on queries count everything in it, also what other relays report.')
param existingWorkspace string = ''

@description('Resource group of existingWorkspace.')
param existingWorkspaceResourceGroup string = resourceGroup().name

@description('Name of an existing Application Insights to use instead of a new one. It must be that of existingWorkspace, which alerts query.')
param existingApplicationInsights string = ''

@description('Resource group of existingApplicationInsights.')
param existingApplicationInsightsResourceGroup string = resourceGroup().name

// Names are computed here, not taken from module outputs, so that what-if can evaluate every module.
var resourceToken = toLower(uniqueString(subscription().id, resourceGroup().id, environmentName))
var allTags = union({ 'azd-env-name': environmentName, application: 'outbox-relay' }, tags)
var identityName = 'id-relay-${resourceToken}'
var identityId = resourceId('Microsoft.ManagedIdentity/userAssignedIdentities', identityName)
var serviceBusName = empty(existingServiceBusNamespace) ? 'sbns-relay-${resourceToken}' : existingServiceBusNamespace
var serviceBusGroup = empty(existingServiceBusNamespace) ? resourceGroup().name : existingServiceBusResourceGroup
var existingWorkspaceId = empty(existingWorkspace) ? '' : resourceId(existingWorkspaceResourceGroup, 'Microsoft.OperationalInsights/workspaces', existingWorkspace)
var postgresName = 'psql-relay-${resourceToken}'
var azureSqlName = 'sql-relay-${resourceToken}'
var workerName = 'ca-relay-${resourceToken}'
var workerEnvironmentName = 'cae-relay-${resourceToken}'
var networkName = 'vnet-relay-${resourceToken}'
var largeEventsName = 'stlarge${resourceToken}'
// ISO 8601 to seconds. The relay's setting is derived from the topic's window, so that the two cannot differ.
var duplicateDetectionSeconds = dateTimeToEpoch(dateTimeAdd('1970-01-01T00:00:00Z', duplicateDetectionWindow, 'yyyy-MM-ddTHH:mm:ssZ'))
// Those of all streams: a replica claims the shards of each stream by itself, and an alert counts all that are read.
var inCosmos = filter(streams, each => contains(each, 'container'))
var allShards = empty(inCosmos) ? length(flatten(map(streams, each => range(0, each.?shards ?? shards)))) : fail('streams has an outbox in Cosmos DB, which the worker does not read: ${join(map(inCosmos, each => each.name), ', ')}. Deploy main.bicep with sqlOutbox')
var onPostgres = engine == 'PostgreSQL'
var newServer = empty(existingDatabaseServer)

var applicationInsightsName = empty(existingApplicationInsights) ? 'appi-relay-${resourceToken}' : existingApplicationInsights
var allowedApplicationInsights = (!empty(existingApplicationInsights) && empty(existingWorkspace)) ? fail('existingApplicationInsights needs existingWorkspace, its own: alerts would query a workspace that gets none of its telemetry') : applicationInsightsName
var allowedSku = (privateNetworking && serviceBusSku != 'Premium') ? fail('privateNetworking needs serviceBusSku Premium: Standard has no private endpoints, and its public access cannot be closed') : serviceBusSku
var allowedEmails = (empty(operatorEmails) && !trial) ? fail('operatorEmails is empty: nobody would learn of an alert. Set at least one address, or trial') : operatorEmails
var allowedRunbook = (!startsWith(runbook, 'https://') && !trial) ? fail('runbook is \'${runbook}\', to which no alert can link: set the address, with https://, where operators read your copy of docs/runbook.md, or set trial') : runbook
var allowedZoneRedundant = (zoneRedundant && !privateNetworking) ? fail('zoneRedundant needs privateNetworking: an environment of Container Apps is zone redundant only in a virtual network') : zoneRedundant
var allowedTier = (onPostgres && zoneRedundant && postgresSkuTier == 'Burstable') ? fail('zoneRedundant needs postgresSkuTier GeneralPurpose or MemoryOptimized: a Burstable server has no standby') : postgresSkuTier
var atMost = max(allShards, minReplicas)
var allowedMaxReplicas = (maxReplicas < minReplicas || maxReplicas > atMost) ? fail('maxReplicas must be at least minReplicas, and at most the number of shards where that is more: a replica without a shard is idle') : maxReplicas

// A URL of PostgreSQL has the name of the role, which is the identity's; the token takes the place of the password.
var host = !newServer ? existingServer!.outputs.host : (onPostgres ? postgres!.outputs.host : azureSql!.outputs.host)
var serverId = !newServer ? existingServer!.outputs.id : (onPostgres ? postgres!.outputs.id : azureSql!.outputs.id)
var postgresUrl = '${host}:5432/${database}?sslmode=verify-full&sslrootcert=system'
var azureSqlServer = 'Server=tcp:${host},1433;Database=${database};Encrypt=yes'

// Every namespace, the worker's own first.
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

// Those of the worker that python -m relay needs as well: an operator's release or replay sends events as the worker does.
var sharedSettings = union({
  SQL_FEED: feed
  SQL_MAX_BYTES: '67108864'
  SQL_SHARDS: string(shards)
  SQL_CLAIM_S: string(claimSeconds)
  SERVICEBUS__fullyQualifiedNamespace: messaging[0].outputs.fullyQualifiedNamespace
  SERVICEBUS_TOPIC: serviceBusTopic
  RELAY_EVENT_TYPE: relayEventType
  RELAY_DUPLICATE_WINDOW_S: string(duplicateDetectionSeconds)
  RELAY_ON_POISON: relayOnPoison
  RELAY_MESSAGE_FORMAT: relayMessageFormat
  RELAY_CLOUDEVENTS_SOURCE: relayCloudEventsSource
}, otherAddresses, largeSettings)

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
    // There is no Functions host.
    dropHostSpans: false
    relayIdentityId: identityId
    relayPrincipalId: identity.outputs.principalId
  }
}

module postgres 'modules/postgresql.bicep' = if (newServer && onPostgres) {
  name: 'postgresql'
  params: {
    name: postgresName
    location: location
    tags: allTags
    database: database
    version: postgresVersion
    skuName: postgresSkuName
    skuTier: allowedTier
    storageSizeGB: postgresStorageInGigabytes
    backupRetentionDays: postgresBackupRetentionInDays
    zoneRedundant: allowedZoneRedundant
    publicAccess: !privateNetworking
    clientIpAddresses: clientIpAddresses
    administratorObjectId: administratorObjectId
    administratorName: administratorName
    administratorType: administratorType
  }
}

module existingServer 'modules/existing-database.bicep' = if (!newServer) {
  name: 'existing-database-${resourceToken}'
  scope: resourceGroup(existingDatabaseResourceGroup)
  params: {
    name: existingDatabaseServer
    onPostgres: onPostgres
  }
}

module azureSql 'modules/azure-sql.bicep' = if (newServer && !onPostgres) {
  name: 'azure-sql'
  params: {
    name: azureSqlName
    location: location
    tags: allTags
    database: database
    skuName: azureSqlSkuName
    zoneRedundant: allowedZoneRedundant
    publicAccess: !privateNetworking
    clientIpAddresses: clientIpAddresses
    administratorObjectId: administratorObjectId
    administratorName: administratorName
    administratorType: administratorType
  }
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

module registryAccess 'modules/registry-access.bicep' = if (!empty(registryName)) {
  name: 'registry-access'
  params: {
    registryName: registryName
    relayIdentityId: identityId
    relayPrincipalId: identity.outputs.principalId
  }
}

module largeEvents 'modules/large-events.bicep' = if (claimCheck) {
  name: 'large-events'
  params: {
    name: largeEventsName
    location: location
    tags: allTags
    container: relayBlobContainer
    zoneRedundant: allowedZoneRedundant
    publicAccess: !privateNetworking
    keptInDays: allowedKeptInDays
    lockAccount: lockLargeEvents
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
        name: 'database'
        id: serverId
        groupId: onPostgres ? 'postgresqlServer' : 'sqlServer'
        zoneName: onPostgres ? 'privatelink.postgres.database.azure.com' : 'privatelink${environment().suffixes.sqlServerHostname}'
      }
      {
        name: 'servicebus'
        id: messaging[0].outputs.namespaceId
        groupId: 'namespace'
        zoneName: 'privatelink.servicebus.windows.net'
      }
    ]
  }
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

// After every role assignment and private endpoint. Until the feed is installed and the identity has its role in the database,
// the worker reports that, and tries again.
module worker 'modules/worker.bicep' = {
  name: 'worker'
  params: {
    name: workerName
    environmentName: workerEnvironmentName
    location: location
    tags: allTags
    identityId: identityId
    identityClientId: identity.outputs.clientId
    image: image
    registryName: registryName
    registryServer: empty(registryName) ? '' : registryAccess!.outputs.server
    applicationInsightsConnectionString: monitoring.outputs.applicationInsightsConnectionString
    relaySettings: union(sharedSettings, identitiesOfOthers, largeIdentity, {
      SQL: onPostgres ? 'postgresql://${identityName}@${postgresUrl}' : '${azureSqlServer};Authentication=ActiveDirectoryMSI;UID=${identity.outputs.clientId}'
      RELAY_MAX_ITEMS: string(relayMaxItems)
      RELAY_POLL_DELAY_MS: string(relayPollDelayMs)
      RELAY_PIPELINED: relayPipelined ? 'true' : 'false'
      RELAY_SENDERS: relaySenders == 0 ? '' : string(relaySenders)
      RELAY_SEND_TIMEOUT_S: string(relaySendTimeoutS)
      RELAY_ATTEMPT_TIMEOUT_S: string(relayAttemptTimeoutS)
    })
    minReplicas: minReplicas
    maxReplicas: allowedMaxReplicas
    cpu: cpu
    memory: memory
    // The relay waits SQL_CLAIM_S for the pages under way, and needs a few seconds to release its shards.
    terminationGracePeriodSeconds: claimSeconds + 20
    zoneRedundant: allowedZoneRedundant
    subnetId: privateNetworking ? network!.outputs.integrationSubnetId : ''
  }
  dependsOn: [
    endpoints
    otherEndpoints
  ]
}

module diagnostics 'modules/sql-diagnostics.bicep' = {
  name: 'diagnostics'
  params: {
    workspaceId: monitoring.outputs.workspaceId
    serviceBusNamespaceName: empty(existingServiceBusNamespace) ? serviceBusName : ''
    environmentName: workerEnvironmentName
    postgresServerName: newServer && onPostgres ? postgresName : ''
    azureSqlServerName: newServer && !onPostgres ? azureSqlName : ''
    database: database
  }
  dependsOn: [
    postgres
    azureSql
    messaging
    worker
  ]
}

module alerts 'modules/sql-alerts.bicep' = {
  name: 'alerts'
  params: {
    location: location
    tags: allTags
    resourceToken: resourceToken
    workspaceId: monitoring.outputs.workspaceId
    namespaces: watchedNamespaces
    workerId: worker.outputs.id
    severalStreams: length(streams) > 1
    shards: allShards
    operatorEmails: allowedEmails
    runbook: allowedRunbook
    thresholds: alertThresholds
  }
  dependsOn: [
    messaging
  ]
}

@description('The settings for python -m relay --env-file, for the administrator of the database: no password, as az login provides a token. Other operators put their own name into SQL.')
output settings object = union(sharedSettings, {
  SQL: onPostgres ? 'postgresql://${uriComponent(administratorName)}@${postgresUrl}' : '${azureSqlServer};Authentication=ActiveDirectoryDefault'
})

@description('The identity to create a role for in the database (docs/sql.md#on-azure-container-apps).')
output RELAY_IDENTITY string = identityName
output RELAY_APP string = worker.outputs.name
