// Production: private networking, zone redundancy, and a shard for each of up to four replicas. Idle, some 677 dollars a month
// for Service Bus Premium (docs/capacity.md, An idle month). The server with its standby, two replicas of the worker and the
// private endpoints cost money while idle, too: that page has no table for them.
using './sql.bicep'

param environmentName = 'production'
param privateNetworking = true
param zoneRedundant = true

param engine = 'PostgreSQL'
param postgresSkuName = 'Standard_D2ds_v5'
param postgresSkuTier = 'GeneralPurpose'
param postgresStorageInGigabytes = 128
param postgresBackupRetentionInDays = 35

param serviceBusSku = 'Premium'
param serviceBusMessagingUnits = 1
param topicMaxSizeInMegabytes = 81920

param shards = 4
param minReplicas = 2
param maxReplicas = 4
param cpu = '1'
param memory = '2Gi'

// A group, so that more than one person can repair the database.
param administratorObjectId = '00000000-0000-0000-0000-000000000000'
param administratorName = 'outbox-administrators'
param administratorType = 'Group'

param registryName = 'myregistry'
// With its digest, so that each replica runs the same image, whenever it starts:
// az acr repository show --name myregistry --image outbox-relay:1 --query digest --output tsv
param image = 'myregistry.azurecr.io/outbox-relay@sha256:0000000000000000000000000000000000000000000000000000000000000000'

// Object ids of groups. For users, change the type below to User.
param operatorPrincipalIds = []
param operatorPrincipalType = 'Group'
// Who is told of alerts, and the address where they read what to do.
param operatorEmails = ['operators@example.org']
param runbook = 'https://example.org/docs/runbook.md'
param logRetentionInDays = 90
param dailyLogQuotaInGigabytes = 20

// One entry for each consumer, with the principal id of its managed identity in receiverPrincipalIds.
param subscriptions = [
  {
    name: 'all'
    receiverPrincipalIds: []
  }
]

// What relay.toml needs, as python -m infra.parameters writes it.
param destinations = loadJsonContent('relay.json').destinations
param streams = loadJsonContent('relay.json').streams
