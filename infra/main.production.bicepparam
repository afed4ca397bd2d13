// Production: private, over several zones, always awake.
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

// One entry a consumer; its managed identity's principal id goes into receiverPrincipalIds.
param subscriptions = [
  {
    name: 'all'
    maxDeliveryCount: 10
    lockDuration: 'PT1M'
    receiverPrincipalIds: []
  }
  {
    name: 'names'
    action: 'ContactNameUpdatedEvent'
    receiverPrincipalIds: []
  }
]

param writerPrincipalIds = []
// Ids of groups: the type below goes with them. For single users it is User.
param operatorPrincipalIds = []
param operatorPrincipalType = 'Group'
param operatorEmails = []
param logRetentionInDays = 90
param dailyLogQuotaInGigabytes = 20
// In preview: set it to false where the deployment of diagnostic settings is refused for it.
param summarizeWrites = true
