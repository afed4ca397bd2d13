metadata description = 'The action group, and the alert rules that hold whatever the outbox is. docs/runbook.md has a section for each rule.'

import { metricNames } from 'names.bicep'

param location string
param tags object
param resourceToken string
param workspaceId string

@description('The Service Bus namespaces: each with its id, the names of its topics and queues that the relay sends to (entities), the maximum size of one of them over all its partitions (capacityInMegabytes), and what its rules add to their names (suffix).')
param namespaces array

@description('E-mail addresses to notify. Without any, alerts appear only in the portal.')
param operatorEmails array

@description('Address of docs/runbook.md, to which each alert links.')
param runbook string

@description('Thresholds by name.')
param limits object

@description('Whether relay.toml makes several streams. Rules whose query returns the column Stream (byStream) then have an alert for each of them, as one that is sick is hidden by healthy ones otherwise.')
param severalStreams bool

@description('Rules of one kind of outbox, of the form of those below.')
param logAlerts array
param metricAlerts array

// One percent of a megabyte, in bytes.
var percentOfMegabyte = 10485

// Rules on the queries, which the workbook shows too. Each query returns a number, or one row for each finding.
var sharedLogAlerts = [
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
    byStream: true
    window: 'PT15M'
    frequency: 'PT5M'
    resolves: true
  }
  {
    name: 'unpublished'
    says: 'Events wait in the outbox: a part of it cannot be published, or the outbox cannot be read.'
    severity: 1
    query: loadTextContent('../queries/unpublished.kql')
    measure: { metricMeasureColumn: 'AgeSeconds' }
    timeAggregation: 'Maximum'
    operator: 'GreaterThan'
    threshold: limits.unpublishedSeconds
    dimensions: ['Partition']
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
    byStream: true
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
    byStream: true
    window: 'PT15M'
    frequency: 'PT5M'
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
// Where a dimension has several values, each topic or queue has an alert of its own.
var sharedMetricAlerts = flatten(map(namespaces, each => [
  {
    name: 'dead-letters'
    suffix: each.suffix
    says: 'Messages were dead-lettered: a consumer did not process them, or they expired.'
    severity: 2
    resourceId: each.id
    metric: 'DeadletteredMessages'
    namespace: 'Microsoft.ServiceBus/namespaces'
    timeAggregation: 'Maximum'
    threshold: limits.deadLetters
    dimensions: [
      {
        name: 'EntityName'
        operator: 'Include'
        values: metricNames(each.entities)
      }
    ]
    window: 'PT5M'
    frequency: 'PT5M'
  }
  {
    name: 'backlog'
    suffix: each.suffix
    says: 'Messages accumulate in the topic: a consumer is slow or stopped.'
    severity: 3
    resourceId: each.id
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
        values: metricNames(each.entities)
      }
    ]
    window: 'PT15M'
    frequency: 'PT5M'
  }
  {
    name: 'connections'
    suffix: each.suffix
    says: 'The namespace approaches its connection limit, beyond which the relay and consumers cannot connect.'
    severity: 2
    resourceId: each.id
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
    suffix: each.suffix
    says: 'Service Bus throttles requests.'
    severity: 3
    resourceId: each.id
    metric: 'ThrottledRequests'
    namespace: 'Microsoft.ServiceBus/namespaces'
    timeAggregation: 'Total'
    threshold: limits.throttledRequests
    dimensions: []
    window: 'PT15M'
    frequency: 'PT5M'
  }
  {
    name: 'topic-size'
    suffix: each.suffix
    says: 'The topic fills up. A full topic refuses sends, and publishing stops.'
    severity: 1
    resourceId: each.id
    metric: 'Size'
    namespace: 'Microsoft.ServiceBus/namespaces'
    timeAggregation: 'Maximum'
    threshold: each.capacityInMegabytes * percentOfMegabyte * limits.topicSizePercent
    dimensions: [
      {
        name: 'EntityName'
        operator: 'Include'
        values: metricNames(each.entities)
      }
    ]
    window: 'PT5M'
    frequency: 'PT5M'
  }
]))

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

resource logRules 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [for rule in concat(sharedLogAlerts, logAlerts): {
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
          dimensions: map(concat(rule.dimensions, (severalStreams && (rule.?byStream ?? false)) ? ['Stream'] : []), column => { name: column, operator: 'Include', values: ['*'] })
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

resource metricRules 'Microsoft.Insights/metricAlerts@2018-03-01' = [for rule in concat(sharedMetricAlerts, metricAlerts): {
  name: 'relay-${rule.name}${rule.?suffix ?? ''}-${resourceToken}'
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
          operator: rule.?operator ?? 'GreaterThan'
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

output actionGroupId string = operators.id
