metadata description = 'Lets the console read topics with their subscriptions, and queues, of one namespace.'

import { resourceName } from 'names.bicep'

param namespaceName string

@description('Names of the topics and queues that it may read.')
param topics array
param queues array

@description('Resource id and principal id of the console\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param consoleIdentityId string
param consolePrincipalId string

// The least role with which dead letters can be peeked, and subscriptions and their counts read by Azure Resource Manager. With
// it, messages can also be received, which the console does not do; it cannot send, or change the topic.
// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/integration
var dataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
var roleId = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReceiver)

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: namespaceName
}

resource topic 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' existing = [for name in topics: {
  parent: namespace
  name: resourceName(name)
}]

resource queue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' existing = [for name in queues: {
  parent: namespace
  name: resourceName(name)
}]

resource mayLookAtTopic 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for (name, index) in topics: {
  name: guid(topic[index].id, consoleIdentityId, dataReceiver)
  scope: topic[index]
  properties: {
    roleDefinitionId: roleId
    principalId: consolePrincipalId
    principalType: 'ServicePrincipal'
  }
}]

resource mayLookAtQueue 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for (name, index) in queues: {
  name: guid(queue[index].id, consoleIdentityId, dataReceiver)
  scope: queue[index]
  properties: {
    roleDefinitionId: roleId
    principalId: consolePrincipalId
    principalType: 'ServicePrincipal'
  }
}]

output fullyQualifiedNamespace string = replace(replace(namespace.properties.serviceBusEndpoint, 'https://', ''), ':443/', '')
