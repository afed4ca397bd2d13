metadata description = 'The outboxes in one database of a Cosmos DB account: the database, and the containers with documents, leases and quarantine.'

param accountName string
param database string
param dataContainers array
param leaseContainers array

@description('One for each stream of relay.toml.')
param quarantineContainers array

@allowed([
  'Serverless'
  'Autoscale'
])
@description('How the account is billed.')
param capacityMode string

@description('Maximum request units per second of the outbox container, with Autoscale.')
param maxThroughput int

@description('Maximum request units per second of the lease container, with Autoscale.')
param leaseMaxThroughput int

@allowed([
  1
  2
])
@description('2 allows partition keys of 2048 bytes, 1 of 101 bytes. Fixed when a container is created.')
param partitionKeyVersion int

@description('Whether to lock the lease and quarantine containers against deletion. Requires Microsoft.Authorization/locks/write.')
param lockContainers bool

var serverless = capacityMode == 'Serverless'
var dataOptions = serverless ? {} : { autoscaleSettings: { maxThroughput: maxThroughput } }
var leaseOptions = serverless ? {} : { autoscaleSettings: { maxThroughput: leaseMaxThroughput } }
var lockedLeases = lockContainers ? leaseContainers : []
var lockedQuarantines = lockContainers ? quarantineContainers : []
// The minimum of autoscale.
var quarantineOptions = serverless ? {} : { autoscaleSettings: { maxThroughput: 1000 } }
// Cosmos DB always indexes a document's id and _ts.
// https://learn.microsoft.com/azure/cosmos-db/index-policy#include-exclude-paths
var onlyIds = {
  automatic: true
  indexingMode: 'consistent'
  includedPaths: []
  excludedPaths: [
    {
      path: '/*'
    }
  ]
}

resource account 'Microsoft.DocumentDB/databaseAccounts@2025-04-15' existing = {
  name: accountName
}

resource outbox 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases@2025-04-15' = {
  parent: account
  name: database
  properties: {
    resource: {
      id: database
    }
  }
}

resource data 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2025-04-15' = [for container in dataContainers: {
  parent: outbox
  name: container
  properties: {
    resource: {
      id: container
      partitionKey: {
        kind: 'Hash'
        paths: [
          '/partitionKey'
        ]
        // Without a version, keys are limited to 101 bytes. A key may have 128 characters of up to 3 bytes each.
        // https://learn.microsoft.com/azure/cosmos-db/large-partition-keys
        version: partitionKeyVersion
      }
      // Indexed completely (the default), because services query their documents, which share paths with events.
      // Time to live is on without a default: each event's own ttl applies, and business documents do not expire.
      defaultTtl: -1
    }
    options: dataOptions
  }
}]

resource leases 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2025-04-15' = [for container in leaseContainers: {
  parent: outbox
  name: container
  properties: {
    resource: {
      id: container
      // The change feed processor requires this partition key.
      partitionKey: {
        kind: 'Hash'
        paths: [
          '/id'
        ]
        version: partitionKeyVersion
      }
      // Time to live is on without a default. The processor creates a lock document with a ttl of 30 s while it initializes its
      // leases. With time to live off, the lock of a host that is killed at that point never expires, and every later host
      // waits forever without logging. Leases have no ttl and do not expire. The trigger sets -1 on containers that it creates.
      // Azure/azure-cosmos-dotnet-v3, ChangeFeedProcessor/LeaseManagement/DocumentServiceLeaseStoreCosmos.cs
      defaultTtl: -1
      // Leases are queried by id prefix, which is always indexed, and replaced every few seconds.
      indexingPolicy: onlyIds
    }
    options: leaseOptions
  }
}]

resource quarantine 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2025-04-15' = [for container in quarantineContainers: {
  parent: outbox
  name: container
  properties: {
    resource: {
      id: container
      // No time to live: a quarantined event stays until an operator releases or discards it.
      partitionKey: {
        kind: 'Hash'
        paths: [
          '/partitionKey'
        ]
        version: partitionKeyVersion
      }
      // Only the properties that queries of the relay use. Quarantined documents are read by id.
      indexingPolicy: union(onlyIds, {
        includedPaths: map(['type', 'reason', 'partitionKey', 'quarantinedAt', 'at'], name => { path: '/${name}/?' })
      })
    }
    options: quarantineOptions
  }
}]

// Without the leases every event would be published again; without quarantine, events that were not published would be lost. A
// lock also prevents the deletion of the database, the account and the resource group: infra/README.md says how to delete a
// deployment.
resource leasesLock 'Microsoft.Authorization/locks@2020-05-01' = [for (container, number) in lockedLeases: {
  name: 'keep-leases'
  scope: leases[number]
  properties: {
    level: 'CanNotDelete'
    notes: 'Holds the checkpoints of the relay. Without it every event is published again.'
  }
}]

resource quarantineLock 'Microsoft.Authorization/locks@2020-05-01' = [for (container, number) in lockedQuarantines: {
  name: 'keep-quarantine'
  scope: quarantine[number]
  properties: {
    level: 'CanNotDelete'
    notes: 'Holds the events that could not be published. Without it they are lost.'
  }
}]

output accountId string = account.id
output endpoint string = account.properties.documentEndpoint
