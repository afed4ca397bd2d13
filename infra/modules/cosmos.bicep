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

resource account 'Microsoft.DocumentDB/databaseAccounts@2026-03-15' = {
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

resource outbox 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases@2026-03-15' = {
  parent: account
  name: database
  properties: {
    resource: {
      id: database
    }
  }
}

resource data 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2026-03-15' = {
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
      }
      // Time to live on, without a default: each event's own ttl rules, and business documents stay.
      defaultTtl: -1
    }
    options: dataOptions
  }
}

resource leases 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2026-03-15' = {
  parent: outbox
  name: leaseContainer
  properties: {
    resource: {
      id: leaseContainer
      // The change feed processor accepts no other partition key. No time to live: it would delete checkpoints.
      partitionKey: {
        kind: 'Hash'
        paths: [
          '/id'
        ]
      }
    }
    options: smallOptions
  }
}

resource quarantine 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2026-03-15' = {
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
      }
    }
    options: smallOptions
  }
}

output id string = account.id
output endpoint string = account.properties.documentEndpoint
