targetScope = 'resourceGroup'

metadata name = 'Watching consumers with inbox'
metadata description = 'Two alert rules and a workbook on what the library inbox reports (docs/receiving-events.md#telemetry). Deploy it into the resource group of a consumer, once for each workspace that consumers report to.'

@description('Region of every resource.')
param location string = resourceGroup().location

@description('Additional tags for every resource.')
param tags object = {}

@description('Resource id of the Log Analytics workspace of the consumers\' Application Insights.')
param workspaceId string

@description('Resource id of the Application Insights that shows the workbook.')
param applicationInsightsId string

@minLength(1)
@description('E-mail addresses that receive alerts, at least one.')
param operatorEmails array

@description('Address of your copy of docs/runbook.md. Each alert links to its section there.')
param runbook string

@minValue(1)
@description('Seconds from when an event was raised to the end of its handler, beyond which consumer-lag fires.')
param lagSeconds int = 300

@minValue(0)
@description('Messages of one subscription and one cause that failed, were dead-lettered or parked their keys in 15 minutes, beyond which consumer-failing fires.')
param failures int = 5

var allTags = union({ application: 'outbox-relay' }, tags)
var resourceToken = toLower(uniqueString(subscription().id, resourceGroup().id, workspaceId))

var alertRules = [
  {
    name: 'consumer-lag'
    says: 'A consumer handles events late.'
    severity: 2
    query: loadTextContent('queries/consumers/lag.kql')
    measure: 'LagSeconds'
    timeAggregation: 'Maximum'
    threshold: lagSeconds
    dimensions: ['Topic', 'Subscription']
  }
  {
    name: 'consumer-failing'
    says: 'A consumer cannot handle messages: its handler fails, dead-letters them or parks their keys.'
    severity: 2
    query: loadTextContent('queries/consumers/failing.kql')
    measure: 'Messages'
    timeAggregation: 'Total'
    threshold: failures
    dimensions: ['Topic', 'Subscription', 'What']
  }
]

// Two rows of panels, each 100 wide.
var panels = [
  {
    title: 'Lag: seconds from an event to the end of its handler'
    query: loadTextContent('queries/consumers/lag.kql')
    visualization: 'timechart'
    width: '50'
  }
  {
    title: 'What consumers cannot handle (empty is good)'
    query: loadTextContent('queries/consumers/failing.kql')
    visualization: 'table'
    width: '50'
  }
  {
    title: 'Messages handled'
    query: loadTextContent('queries/consumers/handled.kql')
    visualization: 'timechart'
    width: '34'
  }
  {
    title: 'Sessions held by a process'
    query: loadTextContent('queries/consumers/sessions.kql')
    visualization: 'timechart'
    width: '33'
  }
  {
    title: 'Events that did not come (empty is good)'
    query: loadTextContent('queries/consumers/gaps.kql')
    visualization: 'timechart'
    width: '33'
  }
]

resource operators 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: 'ag-consumers-${resourceToken}'
  location: 'global'
  tags: allTags
  properties: {
    groupShortName: 'consumers'
    enabled: true
    emailReceivers: [for email in operatorEmails: {
      name: email
      emailAddress: email
      useCommonAlertSchema: true
    }]
  }
}

resource logRules 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [for rule in alertRules: {
  name: 'relay-${rule.name}-${resourceToken}'
  location: location
  tags: allTags
  kind: 'LogAlert'
  properties: {
    displayName: 'Outbox Relay: ${rule.name}'
    description: '${rule.says} ${runbook}#${rule.name}'
    severity: rule.severity
    enabled: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    autoMitigate: true
    // The table exists only after its first row has arrived.
    skipQueryValidation: true
    criteria: {
      allOf: [
        {
          query: rule.query
          metricMeasureColumn: rule.measure
          timeAggregation: rule.timeAggregation
          operator: 'GreaterThan'
          threshold: rule.threshold
          dimensions: map(rule.dimensions, column => { name: column, operator: 'Include', values: ['*'] })
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    actions: {
      actionGroups: [
        operators.id
      ]
    }
  }
}]

var head = [
  {
    type: 1
    name: 'head'
    content: {
      json: 'Consumers with the library `inbox`. Runbook: ${runbook}'
    }
  }
  {
    type: 9
    name: 'parameters'
    content: {
      version: 'KqlParameterItem/1.0'
      style: 'pills'
      queryType: 0
      resourceType: 'microsoft.operationalinsights/workspaces'
      parameters: [
        {
          id: guid('TimeRange')
          version: 'KqlParameterItem/1.0'
          name: 'TimeRange'
          label: 'Time range'
          type: 4
          isRequired: true
          value: {
            durationMs: 14400000
          }
          typeSettings: {
            selectableValues: map([1800000, 3600000, 14400000, 86400000, 604800000], milliseconds => { durationMs: milliseconds })
            allowCustom: true
          }
        }
      ]
    }
  }
]

var shown = [for panel in panels: {
  type: 3
  name: panel.title
  customWidth: panel.width
  content: {
    version: 'KqlItem/1.0'
    title: panel.title
    query: panel.query
    size: 0
    timeContextFromParameter: 'TimeRange'
    queryType: 0
    resourceType: 'microsoft.operationalinsights/workspaces'
    crossComponentResources: [
      workspaceId
    ]
    visualization: panel.visualization
    noDataMessage: 'No data in this time range.'
  }
}]

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(resourceGroup().id, resourceToken, 'workbook')
  location: location
  tags: allTags
  kind: 'shared'
  properties: {
    displayName: 'Outbox consumers'
    category: 'workbook'
    sourceId: applicationInsightsId
    serializedData: string({ version: 'Notebook/1.0', items: concat(head, shown) })
  }
}

output workbookId string = workbook.id
