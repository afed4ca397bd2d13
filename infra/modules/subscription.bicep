metadata description = 'A subscription of the topic, its filter, and the consumers that may receive from it.'

import { resourceName } from 'names.bicep'

param namespaceName string
param topicName string
param name string

@description('The action (message subject) to receive; empty for every event.')
param action string

@description('An SQL filter of Service Bus on what to receive, instead of an action; empty for none.')
param filter string

@description('ISO 8601 duration, at most PT5M, for which a receiver locks a message or a session.')
param lockDuration string

@description('Number of deliveries after which a message is dead-lettered.')
param maxDeliveryCount int

@description('ISO 8601 duration, limited by the topic\'s own.')
param messageTimeToLive string

@description('Principal ids of the consumers of this subscription.')
param receiverPrincipalIds array

// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/integration
var dataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'

// https://learn.microsoft.com/azure/service-bus-messaging/service-bus-messaging-sql-filter
var expression = {
  filterType: 'SqlFilter'
  sqlFilter: {
    sqlExpression: empty(filter) ? '1=1' : filter
  }
}
var oneAction = {
  filterType: 'CorrelationFilter'
  correlationFilter: {
    label: action
  }
}

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: namespaceName
}

resource topic 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' existing = {
  parent: namespace
  name: resourceName(topicName)
}

// requiresSession is fixed when the subscription is created: Service Bus rejects a redeployment with another value.
// No autoDeleteOnIdle: a subscription that is deleted while its consumer is stopped loses that consumer's events.
resource subscription 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' = {
  parent: topic
  name: name
  properties: {
    requiresSession: true
    deadLetteringOnMessageExpiration: true
    deadLetteringOnFilterEvaluationExceptions: true
    maxDeliveryCount: maxDeliveryCount
    lockDuration: lockDuration
    defaultMessageTimeToLive: messageTimeToLive
    enableBatchedOperations: true
    status: 'Active'
  }
}

// Service Bus creates every subscription with the rule $Default, which accepts every message. Rules are combined with OR, so a
// filter must replace $Default.
resource rule 'Microsoft.ServiceBus/namespaces/topics/subscriptions/rules@2024-01-01' = {
  parent: subscription
  name: '$Default'
  properties: empty(action) ? expression : oneAction
}

resource receiversMayReceive 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in receiverPrincipalIds: {
  name: guid(subscription.id, principalId, dataReceiver)
  scope: subscription
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReceiver)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

output id string = subscription.id
