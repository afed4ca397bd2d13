metadata description = 'The outbox: a Cosmos DB account that knows no keys, its database and its three containers.'

param name string
param location string
param tags object
param database string
param dataContainer string
param leaseContainer string
param quarantineContainer string

@allowed([
  'Serverless'
  'Autoscale'
])
param capacityMode string

@description('Most request units a second of the outbox container, where the capacity mode is Autoscale.')
param maxThroughput int

@description('A second region to fail over to; empty for none.')
param secondaryLocation string
param zoneRedundant bool

@allowed([
  'Continuous7Days'
  'Continuous30Days'
])
param backupTier string
param publicAccess bool

@allowed([
  1
  2
])
@description('2 takes partition keys of 2048 bytes, 1 of 101 bytes. Fixed when a container is created.')
param partitionKeyVersion int

@description('Whether leases and quarantine are locked against deletion. Takes the right Microsoft.Authorization/locks/write.')
param lockContainers bool

var serverless = capacityMode == 'Serverless'
var primary = {
  locationName: location
  failoverPriority: 0
  isZoneRedundant: zoneRedundant
}
var secondary = {
  locationName: secondaryLocation
  failoverPriority: 1
  isZoneRedundant: false
}
var dataOptions = serverless ? {} : { autoscaleSettings: { maxThroughput: maxThroughput } }
// 1000 is the least that autoscale takes; leases and quarantine never need more.
var smallOptions = serverless ? {} : { autoscaleSettings: { maxThroughput: 1000 } }
// The id and _ts of a document are always indexed.
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

resource account 'Microsoft.DocumentDB/databaseAccounts@2025-04-15' = {
  name: name
  location: location
  tags: tags
  kind: 'GlobalDocumentDB'
  properties: {
    databaseAccountOfferType: 'Standard'
    locations: empty(secondaryLocation) ? [primary] : [primary, secondary]
    enableAutomaticFailover: !empty(secondaryLocation)
    // One region writes: with several, the change feed has no order that holds within a partition key.
    enableMultipleWriteLocations: false
    consistencyPolicy: {
      defaultConsistencyLevel: 'Session'
    }
    disableLocalAuth: true
    disableKeyBasedMetadataWriteAccess: true
    minimalTlsVersion: 'Tls12'
    publicNetworkAccess: publicAccess ? 'Enabled' : 'Disabled'
    networkAclBypass: 'None'
    capabilities: serverless ? [{ name: 'EnableServerless' }] : []
    backupPolicy: {
      type: 'Continuous'
      continuousModeProperties: {
        tier: backupTier
      }
    }
  }
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

resource data 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2025-04-15' = {
  parent: outbox
  name: dataContainer
  properties: {
    resource: {
      id: dataContainer
      partitionKey: {
        kind: 'Hash'
        paths: [
          '/partitionKey'
        ]
        // Without it a container takes keys of 101 bytes only: a key may have 128 characters, of up to 3 bytes each.
        // https://learn.microsoft.com/azure/cosmos-db/large-partition-keys
        version: partitionKeyVersion
      }
      // Indexed as a whole, as Cosmos DB does by default: services query their documents, which share paths with events.
      // Time to live on, without a default: each event's own ttl rules, and business documents stay.
      defaultTtl: -1
    }
    options: dataOptions
  }
}

resource leases 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2025-04-15' = {
  parent: outbox
  name: leaseContainer
  properties: {
    resource: {
      id: leaseContainer
      // The change feed processor accepts no other partition key.
      partitionKey: {
        kind: 'Hash'
        paths: [
          '/id'
        ]
        version: partitionKeyVersion
      }
      // Time to live on, without a default. The processor takes a lock with a ttl of 30 s while it sets up its leases; where
      // time to live is off, the lock of a host that was killed there never expires, and every later host waits for ever,
      // without a line of log. Leases have no ttl: they stay. The trigger sets -1 on a container that it creates itself.
      // Azure/azure-cosmos-dotnet-v3, ChangeFeedProcessor/LeaseManagement/DocumentServiceLeaseStoreCosmos.cs
      defaultTtl: -1
      // Leases are found by the beginning of their id, which is always indexed, and are replaced every few seconds.
      indexingPolicy: onlyIds
    }
    options: smallOptions
  }
}

resource quarantine 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2025-04-15' = {
  parent: outbox
  name: quarantineContainer
  properties: {
    resource: {
      id: quarantineContainer
      // No time to live: what is set aside stays until somebody releases or discards it.
      partitionKey: {
        kind: 'Hash'
        paths: [
          '/partitionKey'
        ]
        version: partitionKeyVersion
      }
      // What the relay and python -m relay ask for, and not the quarantined documents, which are read by id.
      indexingPolicy: union(onlyIds, {
        includedPaths: map(['type', 'reason', 'partitionKey', 'quarantinedAt'], name => { path: '/${name}/?' })
      })
    }
    options: smallOptions
  }
}

// Without leases every event is published again, without quarantine nobody knows what was not. A lock also stops the deletion
// of the database, the account and the resource group: infra/README.md says how to take a deployment down.
resource leasesLock 'Microsoft.Authorization/locks@2020-05-01' = if (lockContainers) {
  name: 'keep-leases'
  scope: leases
  properties: {
    level: 'CanNotDelete'
    notes: 'Holds how far the relay has come: without it every event is published again.'
  }
}

resource quarantineLock 'Microsoft.Authorization/locks@2020-05-01' = if (lockContainers) {
  name: 'keep-quarantine'
  scope: quarantine
  properties: {
    level: 'CanNotDelete'
    notes: 'Holds the events that were not published: without it nobody knows of them.'
  }
}

output id string = account.id
output endpoint string = account.properties.documentEndpoint
