metadata description = 'Who is told when the relay is in trouble, and of what. Each rule has a section of its name in docs/runbook.md.'

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

@description('Megabytes that the topic may hold in all, partitions included.')
param topicCapacityInMegabytes int

@description('E-mail addresses; with none, alerts show in the portal alone.')
param operatorEmails array

@description('Where docs/runbook.md is read, the beginning of the address that each alert gives.')
param runbook string

@description('Thresholds that are to differ from the defaults below, by their names.')
param thresholds object

var defaults = {
  // An idle relay takes less than a second and a cold start some tens: five minutes are a backlog that consumers notice.
  lagSeconds: 300
  // A working day in which somebody can still act before Cosmos DB deletes the event.
  headroomHours: 24
  // Each is an event that nobody was told of.
  quarantined: 0
  // Retries come within a second to a minute: more in 15 minutes is no passing fault, but an outage or a wrong setting.
  failedAttempts: 5
  // The trigger gives one each 13 seconds for a document that it cannot hand over, and now and then one in passing, as
  // when an instance is stopped.
  leaseWarnings: 10
  // Each is an event that a consumer could not take.
  deadLetters: 0
  // The SDKs wait and try again: some in 15 minutes delay events by seconds, a hundred a quarter of an hour's.
  throttledRequests: 100
  // What all subscriptions together have not received: a burst is gone within minutes, the backlog of a consumer that is
  // away is not.
  activeMessages: 1000
  // A namespace takes 5000, of which each sender of each instance is one; then it refuses new ones.
  // https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
  connections: 4000
  // A full topic refuses sends. The sessions of a partitioned topic fill its partitions unevenly, hence not later.
  topicSizePercent: 60
}
var merged = union(defaults, thresholds)
var limits = length(merged) > length(defaults) ? fail('alertThresholds has a name that is none of: ${join(map(items(defaults), entry => entry.key), ', ')}') : merged

// A hundredth of a megabyte, in bytes.
var percentOfMegabyte = 10485

// From the queries that the workbook shows too. Each yields a number, or one row for each finding.
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
    says: 'Cosmos DB will soon delete events that have not been relayed: they would be lost.'
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
    says: 'Documents that cannot become messages were put into quarantine: nobody was told of them.'
    severity: 2
    query: loadTextContent('../queries/quarantine.kql')
    measure: { metricMeasureColumn: 'Quarantined' }
    timeAggregation: 'Total'
    operator: 'GreaterThan'
    threshold: limits.quarantined
    dimensions: ['Reason']
    window: 'PT15M'
    frequency: 'PT5M'
    // It does not go away by itself, so it is not reported as resolved.
    resolves: false
  }
  {
    name: 'failing'
    says: 'Attempts fail, and their events come again until they do not.'
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
    says: 'The host cannot hand a document to the relay; nothing of its physical partition goes on.'
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
    says: 'The relay receives nothing although there is something to do.'
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
    says: 'The daily quota of the workspace is reached: telemetry is dropped until tomorrow, and alerts on it are blind.'
    severity: 1
    query: loadTextContent('../queries/quota.kql')
    measure: { metricMeasureColumn: 'Refusals' }
    timeAggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 0
    dimensions: []
    window: 'PT15M'
    frequency: 'PT5M'
    // The workspace says it once, and it holds until the next day.
    resolves: false
  }
]

// What the services measure themselves. These metrics cannot be sent to the workspace (column DS Export of
// https://learn.microsoft.com/azure/azure-monitor/reference/supported-metrics/metrics-index), so no query sees them.
var metricAlerts = [
  {
    name: 'dead-letters'
    says: 'Messages were dead-lettered: a consumer did not take them, or they expired.'
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
    says: 'Messages wait in the topic: the consumer of a subscription is slow or away.'
    severity: 3
    resourceId: serviceBusNamespaceId
    // The sum over the subscriptions of the topic. Azure Monitor has no such metric of a single subscription.
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
    says: 'The namespace nears its limit of connections; beyond it, the relay and the consumers are refused.'
    severity: 2
    resourceId: serviceBusNamespaceId
    metric: 'ActiveConnections'
    namespace: 'Microsoft.ServiceBus/namespaces'
    // The only aggregation there is; over more than a minute it would add up the same connections again.
    timeAggregation: 'Total'
    threshold: limits.connections
    dimensions: []
    window: 'PT1M'
    frequency: 'PT1M'
  }
  {
    name: 'servicebus-throttling'
    says: 'Service Bus refuses requests, as its capacity is used up.'
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
    says: 'Cosmos DB refuses requests (429), as its request units are used up.'
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
    says: 'The topic fills up; when it is full, it refuses sends and relaying stops.'
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
    // A workspace has some tables only when their first row has come.
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

// Nothing else tells of an app that was stopped: it sends no telemetry, and its metrics cannot be told from those of a quiet one.
resource stopped 'Microsoft.Insights/activityLogAlerts@2020-10-01' = {
  name: 'relay-stopped-${resourceToken}'
  location: 'global'
  tags: tags
  properties: {
    description: 'Outbox Relay: stopped. Somebody stopped the function app: no event is published. ${runbook}#stopped'
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
