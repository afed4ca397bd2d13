metadata description = 'What the console may read: the outbox, with its leases and its quarantine, and the topic.'

@description('Empty for an outbox in SQL, where its administrator grants the identity its rights.')
param cosmosAccountName string
param cosmosDatabase string
param serviceBusName string
param serviceBusTopic string
param showSubscriptions bool

@description('Resource id and principal id of the console\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param consoleIdentityId string
param consolePrincipalId string

var onCosmos = !empty(cosmosAccountName)
// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/integration
var dataOwner = '090c5cfd-751d-490a-894a-3ce6f1109419'

resource account 'Microsoft.DocumentDB/databaseAccounts@2025-04-15' existing = {
  name: onCosmos ? cosmosAccountName : 'none'
}

// Reads items and the change feed of every container of the database, and metadata. It writes nothing.
// https://learn.microsoft.com/azure/cosmos-db/nosql/reference-data-plane-security
resource consoleMayRead 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2024-11-15' = if (onCosmos) {
  parent: account
  name: guid(account.id, cosmosDatabase, consoleIdentityId)
  properties: {
    principalId: consolePrincipalId
    roleDefinitionId: '${account.id}/sqlRoleDefinitions/00000000-0000-0000-0000-000000000001'
    scope: '${account.id}/dbs/${cosmosDatabase}'
  }
}

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: serviceBusName
}

resource topic 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' existing = {
  parent: namespace
  name: serviceBusTopic
}

// The role can send and receive as well. The console does neither.
resource consoleMayLook 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (showSubscriptions) {
  name: guid(topic.id, consoleIdentityId, dataOwner)
  scope: topic
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataOwner)
    principalId: consolePrincipalId
    principalType: 'ServicePrincipal'
  }
}

output cosmosEndpoint string = onCosmos ? account!.properties.documentEndpoint : ''
output serviceBusNamespace string = replace(replace(namespace.properties.serviceBusEndpoint, 'https://', ''), ':443/', '')
