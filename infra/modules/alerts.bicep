metadata description = 'Alert rules and the action group they notify. docs/runbook.md has a section for each rule.'

param location string
param tags object
param resourceToken string
param workspaceId string
param serviceBusNamespaceId string
param topicName string
param cosmosAccountId string
param functionAppId string

@description('The container of business documents and events.')
param outboxContainer string

@description('Maximum size of the topic in megabytes, over all its partitions.')
param topicCapacityInMegabytes int

@description('E-mail addresses to notify. Without any, alerts appear only in the portal.')
param operatorEmails array

@description('Address of docs/runbook.md, to which each alert links.')
param runbook string

@description('Thresholds to override, by name.')
param thresholds object

var defaults = {
  // Lag is less than a second normally, and tens of seconds after a cold start. Five minutes are a backlog that consumers notice.
  lagSeconds: 300
  // Leaves a working day to act before Cosmos DB deletes the event.
  headroomHours: 24
  // Each one is an event that was not published.
  quarantined: 0
  // Retries follow within seconds to a minute: more failures in 15 minutes mean an outage or a wrong setting.
  failedAttempts: 5
  // The trigger logs one every 13 seconds for a document that it cannot deliver, and an occasional one otherwise, such as when
  // an instance stops.
  leaseWarnings: 10
  // Each one is an event that a consumer did not process.
  deadLetters: 0
  // The SDKs retry: a few in 15 minutes delay events by seconds, a hundred by many minutes.
  throttledRequests: 100
  // Messages of all subscriptions that wait for a consumer. A burst is consumed within minutes; the backlog of a stopped
  // consumer is not.
  activeMessages: 1000
  // A namespace accepts 5000 connections and refuses more. Each sender of each instance takes one.
  // https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
  connections: 4000
  // A full topic refuses sends. The margin is large because sessions fill the topic's partitions unevenly.
  topicSizePercent: 60
}
var merged = union(defaults, thresholds)
var limits = length(merged) > length(defaults) ? fail('alertThresholds has an unknown name; the known ones are: ${join(map(items(defaults), entry => entry.key), ', ')}') : merged

// One percent of a megabyte, in bytes.
var percentOfMegabyte = 10485

// Rules on the queries, which the workbook shows too. Each query returns a number, or one row for each finding.
var logAlerts = [
  {
    name: 'lag'
    says: 'Events reach Service Bus late.'
    severity: 2
    query: loadTextContent('../queries/lag.kql')
    measure: { metricMeasureColumn: 'LagSeconds' }
    timeAggregation: 'Maximum'
    operator: 'GreaterThan'
    threshold: limits.lagSeconds
    dimensions: []
    window: 'PT15M'
    frequency: 'PT5M'
    resolves: true
  }
  {
    name: 'ttl-headroom'
    says: 'Cosmos DB will soon delete events that have not been published. They would be lost.'
    severity: 0
    query: loadTextContent('../queries/headroom.kql')
    measure: { metricMeasureColumn: 'HeadroomHours' }
    timeAggregation: 'Minimum'
    operator: 'LessThan'
    threshold: limits.headroomHours
    dimensions: []
    window: 'PT15M'
    frequency: 'PT5M'
    resolves: true
  }
  {
    name: 'quarantine'
    says: 'Events that cannot be sent were quarantined and are not published.'
    severity: 2
    query: loadTextContent('../queries/quarantine.kql')
    measure: { metricMeasureColumn: 'Quarantined' }
    timeAggregation: 'Total'
    operator: 'GreaterThan'
    threshold: limits.quarantined
    dimensions: ['Reason']
    window: 'PT15M'
    frequency: 'PT5M'
    // It does not resolve by itself.
    resolves: false
  }
  {
    name: 'failing'
    says: 'Attempts fail. Their events are retried until they succeed.'
    severity: 1
    query: loadTextContent('../queries/failing.kql')
    measure: { metricMeasureColumn: 'Failures' }
    timeAggregation: 'Total'
    operator: 'GreaterThan'
    threshold: limits.failedAttempts
    dimensions: ['Error']
    window: 'PT15M'
    frequency: 'PT5M'
    resolves: true
  }
  {
    name: 'undelivered'
    says: 'The Functions host cannot deliver a document to the relay. No later event of its physical partition is published.'
    severity: 1
    query: loadTextContent('../queries/undelivered.kql')
    measure: { metricMeasureColumn: 'Warnings' }
    timeAggregation: 'Total'
    operator: 'GreaterThan'
    threshold: limits.leaseWarnings
    dimensions: ['Lease']
    window: 'PT15M'
    frequency: 'PT5M'
    resolves: true
  }
  {
    name: 'silent'
    says: 'The relay receives no documents although there is work to do.'
    severity: 1
    query: replace(loadTextContent('../queries/silent.kql'), '$(container)', outboxContainer)
    measure: {}
    timeAggregation: 'Count'
    operator: 'GreaterThan'
    threshold: 0
    dimensions: ['Sign']
    window: 'PT30M'
    frequency: 'PT15M'
    resolves: true
  }
  {
    name: 'quota'
    says: 'The workspace has reached its daily quota. Telemetry is dropped until the next day, and alerts on it do not fire.'
    severity: 1
    query: loadTextContent('../queries/quota.kql')
    measure: { metricMeasureColumn: 'Refusals' }
    timeAggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 0
    dimensions: []
    window: 'PT15M'
    frequency: 'PT5M'
    // The workspace logs it once, and it applies until the next day.
    resolves: false
  }
]

// Rules on platform metrics, which cannot be exported to the workspace (column DS Export of
// https://learn.microsoft.com/azure/azure-monitor/reference/supported-metrics/metrics-index), so no query can use them.
var metricAlerts = [
  {
    name: 'dead-letters'
    says: 'Messages were dead-lettered: a consumer did not process them, or they expired.'
    severity: 2
    resourceId: serviceBusNamespaceId
    metric: 'DeadletteredMessages'
    namespace: 'Microsoft.ServiceBus/namespaces'
    timeAggregation: 'Maximum'
    threshold: limits.deadLetters
    dimensions: [
      {
        name: 'EntityName'
        operator: 'Include'
        values: [topicName]
      }
    ]
    window: 'PT5M'
    frequency: 'PT5M'
  }
  {
    name: 'backlog'
    says: 'Messages accumulate in the topic: a consumer is slow or stopped.'
    severity: 3
    resourceId: serviceBusNamespaceId
    // The sum over all subscriptions of the topic. Azure Monitor has no such metric for one subscription.
    // https://github.com/Azure/azure-service-bus/issues/119
    metric: 'ActiveMessages'
    namespace: 'Microsoft.ServiceBus/namespaces'
    timeAggregation: 'Minimum'
    threshold: limits.activeMessages
    dimensions: [
      {
        name: 'EntityName'
        operator: 'Include'
        values: [topicName]
      }
    ]
    window: 'PT15M'
    frequency: 'PT5M'
  }
  {
    name: 'connections'
    says: 'The namespace approaches its connection limit, beyond which the relay and consumers cannot connect.'
    severity: 2
    resourceId: serviceBusNamespaceId
    metric: 'ActiveConnections'
    namespace: 'Microsoft.ServiceBus/namespaces'
    // The only available aggregation. Over more than one minute it would count a connection more than once.
    timeAggregation: 'Total'
    threshold: limits.connections
    dimensions: []
    window: 'PT1M'
    frequency: 'PT1M'
  }
  {
    name: 'servicebus-throttling'
    says: 'Service Bus throttles requests.'
    severity: 3
    resourceId: serviceBusNamespaceId
    metric: 'ThrottledRequests'
    namespace: 'Microsoft.ServiceBus/namespaces'
    timeAggregation: 'Total'
    threshold: limits.throttledRequests
    dimensions: []
    window: 'PT15M'
    frequency: 'PT5M'
  }
  {
    name: 'cosmos-throttling'
    says: 'Cosmos DB throttles requests (429): the request units are used up.'
    severity: 3
    resourceId: cosmosAccountId
    metric: 'TotalRequests'
    namespace: 'Microsoft.DocumentDB/databaseAccounts'
    timeAggregation: 'Count'
    threshold: limits.throttledRequests
    dimensions: [
      {
        name: 'StatusCode'
        operator: 'Include'
        values: ['429']
      }
    ]
    window: 'PT15M'
    frequency: 'PT5M'
  }
  {
    name: 'topic-size'
    says: 'The topic fills up. A full topic refuses sends, and publishing stops.'
    severity: 1
    resourceId: serviceBusNamespaceId
    metric: 'Size'
    namespace: 'Microsoft.ServiceBus/namespaces'
    timeAggregation: 'Maximum'
    threshold: topicCapacityInMegabytes * percentOfMegabyte * limits.topicSizePercent
    dimensions: [
      {
        name: 'EntityName'
        operator: 'Include'
        values: [topicName]
      }
    ]
    window: 'PT5M'
    frequency: 'PT5M'
  }
]

resource operators 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: 'ag-relay-${resourceToken}'
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'relay'
    enabled: true
    emailReceivers: [for email in operatorEmails: {
      name: email
      emailAddress: email
      useCommonAlertSchema: true
    }]
  }
}

resource logRules 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [for rule in logAlerts: {
  name: 'relay-${rule.name}-${resourceToken}'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: union({
    displayName: 'Outbox Relay: ${rule.name}'
    description: '${rule.says} ${runbook}#${rule.name}'
    severity: rule.severity
    enabled: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: rule.frequency
    windowSize: rule.window
    // Some tables exist in a workspace only after their first row has arrived.
    skipQueryValidation: true
    criteria: {
      allOf: [
        union({
          query: rule.query
          timeAggregation: rule.timeAggregation
          operator: rule.operator
          threshold: rule.threshold
          dimensions: map(rule.dimensions, column => { name: column, operator: 'Include', values: ['*'] })
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }, rule.measure)
      ]
    }
    actions: {
      actionGroups: [
        operators.id
      ]
    }
  }, rule.resolves ? { autoMitigate: true } : { autoMitigate: false, muteActionsDuration: 'PT1H' })
}]

resource metricRules 'Microsoft.Insights/metricAlerts@2018-03-01' = [for rule in metricAlerts: {
  name: 'relay-${rule.name}-${resourceToken}'
  location: 'global'
  tags: tags
  properties: {
    description: 'Outbox Relay: ${rule.name}. ${rule.says} ${runbook}#${rule.name}'
    severity: rule.severity
    enabled: true
    scopes: [
      rule.resourceId
    ]
    evaluationFrequency: rule.frequency
    windowSize: rule.window
    autoMitigate: true
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: rule.name
          criterionType: 'StaticThresholdCriterion'
          metricNamespace: rule.namespace
          metricName: rule.metric
          timeAggregation: rule.timeAggregation
          operator: 'GreaterThan'
          threshold: rule.threshold
          dimensions: rule.dimensions
        }
      ]
    }
    actions: [
      {
        actionGroupId: operators.id
      }
    ]
  }
}]

// No other rule detects a stopped app: it sends no telemetry, and its metrics look like those of an idle one.
resource stopped 'Microsoft.Insights/activityLogAlerts@2020-10-01' = {
  name: 'relay-stopped-${resourceToken}'
  location: 'global'
  tags: tags
  properties: {
    description: 'Outbox Relay: stopped. The function app was stopped, so no event is published. ${runbook}#stopped'
    enabled: true
    scopes: [
      functionAppId
    ]
    condition: {
      allOf: [
        {
          field: 'category'
          equals: 'Administrative'
        }
        {
          field: 'operationName'
          equals: 'Microsoft.Web/sites/stop/action'
        }
        {
          field: 'status'
          equals: 'Succeeded'
        }
      ]
    }
    actions: {
      actionGroups: [
        {
          actionGroupId: operators.id
        }
      ]
    }
  }
}

output actionGroupId string = operators.id
