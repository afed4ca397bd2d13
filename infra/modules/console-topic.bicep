metadata description = 'Lets the console read the subscriptions of the topic.'

param namespaceName string
param topicName string
param showSubscriptions bool

@description('Resource id and principal id of the console\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param consoleIdentityId string
param consolePrincipalId string

// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/integration
var dataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: namespaceName
}

resource topic 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' existing = {
  parent: namespace
  name: topicName
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

output fullyQualifiedNamespace string = replace(replace(namespace.properties.serviceBusEndpoint, 'https://', ''), ':443/', '')
output url string = uri(environment().resourceManager, topic.id)
