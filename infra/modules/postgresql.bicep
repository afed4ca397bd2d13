metadata description = 'Azure Database for PostgreSQL flexible server and the database of the outbox. Only Microsoft Entra principals can log in.'

param name string
param location string
param tags object
param database string

@description('Major version of PostgreSQL: 13 or later.')
param version string
param skuName string

@description('Burstable, GeneralPurpose or MemoryOptimized, as skuName requires.')
param skuTier string
param storageSizeGB int

@description('Days within which the server can be restored to any second: 7 to 35.')
param backupRetentionDays int

@description('A standby in another zone. Not available with the tier Burstable.')
param zoneRedundant bool
param publicAccess bool

@description('IPv4 addresses from which administrators connect. Only with publicAccess.')
param clientIpAddresses array

@description('Object id, name and type (User, Group or ServicePrincipal) of the administrator: whoever installs the feed and creates the relay\'s role.')
param administratorObjectId string
param administratorName string
param administratorType string

resource server 'Microsoft.DBforPostgreSQL/flexibleServers@2025-08-01' = {
  name: name
  location: location
  tags: tags
  sku: {
    name: skuName
    tier: skuTier
  }
  properties: {
    version: version
    createMode: 'Default'
    authConfig: {
      activeDirectoryAuth: 'Enabled'
      passwordAuth: 'Disabled'
      tenantId: subscription().tenantId
    }
    storage: {
      storageSizeGB: storageSizeGB
      autoGrow: 'Enabled'
    }
    backup: {
      backupRetentionDays: backupRetentionDays
      geoRedundantBackup: 'Disabled'
    }
    highAvailability: {
      mode: zoneRedundant ? 'ZoneRedundant' : 'Disabled'
    }
    network: {
      publicNetworkAccess: publicAccess ? 'Enabled' : 'Disabled'
    }
  }
}

// The server allows one change at a time: each resource below waits for the one above it.
resource administrator 'Microsoft.DBforPostgreSQL/flexibleServers/administrators@2025-08-01' = {
  parent: server
  name: administratorObjectId
  properties: {
    principalName: administratorName
    principalType: administratorType
    tenantId: subscription().tenantId
  }
}

resource outbox 'Microsoft.DBforPostgreSQL/flexibleServers/databases@2025-08-01' = {
  parent: server
  name: database
  properties: {
    charset: 'UTF8'
    collation: 'en_US.utf8'
  }
  dependsOn: [
    administrator
  ]
}

// The default. Set here, so that a deployment puts it back.
resource onlyTls 'Microsoft.DBforPostgreSQL/flexibleServers/configurations@2025-08-01' = {
  parent: server
  name: 'require_secure_transport'
  properties: {
    value: 'on'
    source: 'user-override'
  }
  dependsOn: [
    outbox
  ]
}

// Any address within Azure may then try to log in: a container app without a virtual network has no dedicated address.
resource fromAzure 'Microsoft.DBforPostgreSQL/flexibleServers/firewallRules@2025-08-01' = if (publicAccess) {
  parent: server
  name: 'azure'
  properties: {
    startIpAddress: '0.0.0.0'
    endIpAddress: '0.0.0.0'
  }
  dependsOn: [
    onlyTls
  ]
}

@batchSize(1)
resource fromClients 'Microsoft.DBforPostgreSQL/flexibleServers/firewallRules@2025-08-01' = [for address in (publicAccess ? clientIpAddresses : []): {
  parent: server
  name: 'client-${replace(address, '.', '-')}'
  properties: {
    startIpAddress: address
    endIpAddress: address
  }
  dependsOn: [
    fromAzure
  ]
}]

output id string = server.id
output host string = server.properties.fullyQualifiedDomainName
