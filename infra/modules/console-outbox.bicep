metadata description = 'Lets the console read an outbox in Cosmos DB, with its leases and its quarantine.'

param accountName string
param database string

@description('Resource id and principal id of the console\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param consoleIdentityId string
param consolePrincipalId string

resource account 'Microsoft.DocumentDB/databaseAccounts@2025-04-15' existing = {
  name: accountName
}

// Reads items and the change feed of every container of the database, and metadata. It writes nothing.
// https://learn.microsoft.com/azure/cosmos-db/nosql/reference-data-plane-security
resource consoleMayRead 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2024-11-15' = {
  parent: account
  name: guid(account.id, database, consoleIdentityId)
  properties: {
    principalId: consolePrincipalId
    roleDefinitionId: '${account.id}/sqlRoleDefinitions/00000000-0000-0000-0000-000000000001'
    scope: '${account.id}/dbs/${database}'
  }
}

output endpoint string = account.properties.documentEndpoint
