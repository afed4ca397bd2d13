metadata description = 'A Cosmos DB account without key authentication. modules/cosmos-containers.bicep creates the outbox in it.'

param name string
param location string
param tags object

@allowed([
  'Serverless'
  'Autoscale'
])
param capacityMode string

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

resource account 'Microsoft.DocumentDB/databaseAccounts@2025-04-15' = {
  name: name
  location: location
  tags: tags
  kind: 'GlobalDocumentDB'
  properties: {
    databaseAccountOfferType: 'Standard'
    locations: empty(secondaryLocation) ? [primary] : [primary, secondary]
    enableAutomaticFailover: !empty(secondaryLocation)
    // With several write regions, the change feed does not keep the order within a partition key.
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
