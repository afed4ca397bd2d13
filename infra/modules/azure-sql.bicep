metadata description = 'A logical server and a database of Azure SQL for the outbox. Only Microsoft Entra principals can log in. READ_COMMITTED_SNAPSHOT, which the feed requires, is on by default.'

param name string
param location string
param tags object
param database string

@description('Such as S0 or GP_Gen5_2. A serverless database (GP_S_…) is never paused, as the relay asks it for news all the time.')
param skuName string
param zoneRedundant bool
param publicAccess bool

@description('IPv4 addresses from which administrators connect. Only with publicAccess.')
param clientIpAddresses array

@description('Object id, name and type (User, Group or ServicePrincipal) of the administrator: whoever installs the feed and creates the relay\'s user.')
param administratorObjectId string
param administratorName string
param administratorType string

resource server 'Microsoft.Sql/servers@2025-01-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    version: '12.0'
    minimalTlsVersion: '1.2'
    publicNetworkAccess: publicAccess ? 'Enabled' : 'Disabled'
    administrators: {
      administratorType: 'ActiveDirectory'
      azureADOnlyAuthentication: true
      login: administratorName
      principalType: administratorType == 'ServicePrincipal' ? 'Application' : administratorType
      sid: administratorObjectId
      tenantId: subscription().tenantId
    }
  }
}

resource outbox 'Microsoft.Sql/servers/databases@2025-01-01' = {
  parent: server
  name: database
  location: location
  tags: tags
  sku: {
    name: skuName
  }
  properties: {
    zoneRedundant: zoneRedundant
  }
}

// Any address within Azure may then try to log in: a container app without a virtual network has no dedicated address.
resource fromAzure 'Microsoft.Sql/servers/firewallRules@2025-01-01' = if (publicAccess) {
  parent: server
  name: 'azure'
  properties: {
    startIpAddress: '0.0.0.0'
    endIpAddress: '0.0.0.0'
  }
}

resource fromClients 'Microsoft.Sql/servers/firewallRules@2025-01-01' = [for address in (publicAccess ? clientIpAddresses : []): {
  parent: server
  name: 'client-${replace(address, '.', '-')}'
  properties: {
    startIpAddress: address
    endIpAddress: address
  }
}]

output id string = server.id
output host string = server.properties.fullyQualifiedDomainName
