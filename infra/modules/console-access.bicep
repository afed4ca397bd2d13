metadata description = 'What the console may read: the outbox with its leases and its quarantine, and the subscriptions of the topic.'

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
var dataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'

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

// The least role with which dead letters can be peeked, and subscriptions and their counts read by Azure Resource Manager. With
// it, messages can also be received, which the console does not do; it cannot send, or change the topic.
resource consoleMayLook 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (showSubscriptions) {
  name: guid(topic.id, consoleIdentityId, dataReceiver)
  scope: topic
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReceiver)
    principalId: consolePrincipalId
    principalType: 'ServicePrincipal'
  }
}

output cosmosEndpoint string = onCosmos ? account!.properties.documentEndpoint : ''
output serviceBusNamespace string = replace(replace(namespace.properties.serviceBusEndpoint, 'https://', ''), ':443/', '')
output topicUrl string = uri(environment().resourceManager, topic.id)
