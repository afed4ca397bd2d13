metadata description = 'One subscription of the topic, what it filters, and who may receive from it.'

param namespaceName string
param topicName string
param name string

@description('The action (the message subject) to subscribe to; empty for every event.')
param action string

@description('ISO 8601 duration, PT5M at most, for which a receiver holds a message or a session.')
param lockDuration string

@description('Deliveries of one message before it goes to the dead letters.')
param maxDeliveryCount int

@description('ISO 8601 duration. The topic\'s own is the upper limit.')
param messageTimeToLive string

@description('Principal ids of the consumers of this subscription.')
param receiverPrincipalIds array

// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/integration
var dataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'

var everything = {
  filterType: 'SqlFilter'
  sqlFilter: {
    sqlExpression: '1=1'
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
  name: topicName
}

// Sessions are fixed when the subscription is created: a redeployment with another value is refused.
// No autoDeleteOnIdle: a subscription that deletes itself while its consumer is away loses that consumer's events.
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

// Every subscription is born with the rule $Default, which lets everything through. A filter under another name would
// stand beside it and filter nothing: so it takes its place.
resource rule 'Microsoft.ServiceBus/namespaces/topics/subscriptions/rules@2024-01-01' = {
  parent: subscription
  name: '$Default'
  properties: empty(action) ? everything : oneAction
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
