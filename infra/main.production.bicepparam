// Production: private networking, zone redundancy, always-ready instances. Idle, some 870 dollars a month, of which 677 are
// Service Bus Premium (docs/capacity.md, An idle month).
using './main.bicep'

param environmentName = 'production'
param privateNetworking = true
param zoneRedundant = true
param alwaysReadyInstances = 2

param cosmosCapacityMode = 'Autoscale'
param cosmosMaxThroughput = 10000
param cosmosBackupTier = 'Continuous30Days'
param lockContainers = true

param serviceBusSku = 'Premium'
param serviceBusMessagingUnits = 1
param duplicateDetectionWindow = 'P1D'
param topicMaxSizeInMegabytes = 81920

// One entry for each consumer, with the principal id of its managed identity in receiverPrincipalIds.
param subscriptions = [
  {
    name: 'all'
    maxDeliveryCount: 10
    lockDuration: 'PT1M'
    receiverPrincipalIds: []
  }
]

param writerPrincipalIds = []
// Object ids of groups. For users, change the type below to User.
param operatorPrincipalIds = []
param operatorPrincipalType = 'Group'
// Who is told of alerts, and the address where they read what to do.
param operatorEmails = ['operators@example.org']
param runbook = 'https://example.org/docs/runbook.md'
param logRetentionInDays = 90
param dailyLogQuotaInGigabytes = 20
// In preview: set it to false if the deployment of diagnostic settings fails because of it.
param summarizeWrites = true

// What relay.toml needs, as python -m infra.parameters writes it.
param destinations = loadJsonContent('relay.json').destinations
param streams = loadJsonContent('relay.json').streams
