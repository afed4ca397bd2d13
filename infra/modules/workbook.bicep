metadata description = 'The workbook that operators open first: the queries of the alerts and others, and platform metrics.'

import { metricNames } from 'names.bicep'

param location string
param tags object
param resourceToken string
param applicationInsightsId string
param workspaceId string

@description('Resource ids of the Service Bus namespaces.')
param serviceBusNamespaceIds array

@description('Names of the topics and queues that the relay sends to.')
param entities array
param cosmosAccountId string

@description('The streams of outboxes in Cosmos DB: each with its name, and the container that it reads.')
param streams array

@description('Whether the app has several streams: what is by stream then has a line for each.')
param severalStreams bool

@description('Address of docs/runbook.md.')
param runbook string

var serviceBus = 'microsoft.servicebus/namespaces'
var cosmos = 'microsoft.documentdb/databaseaccounts'

// Aggregations of metrics, as the workbook format numbers them.
var total = 1
var maximum = 3
var average = 4
var counted = 7

// Several topics and queues have a line each.
var lines = length(entities) > 1 ? { splitBy: 'EntityName' } : {}
var ofTheTopic = [
  {
    key: 'EntityName'
    operator: 0
    values: metricNames(entities)
  }
]

// Of the only stream, nothing is said.
var ofStreams = severalStreams ? '' : '| project-away Stream\n'
var outboxContainers = union(map(streams, each => each.container), [])

// Six rows of panels, each 100 wide. The first shows whether everything arrives, how late, and what is stuck.
var streamPanels = severalStreams ? [
  {
    row: 1
    title: 'The streams: published, quarantined, failing, late'
    query: loadTextContent('../queries/streams.kql')
    visualization: 'table'
    width: '100'
  }
] : []
var logPanels = [
  {
    row: 1
    title: 'Is everything arriving?'
    query: loadTextContent('../queries/arriving.kql')
    visualization: 'table'
    width: '30'
  }
  {
    row: 1
    title: 'Lag: seconds from commit to acceptance'
    query: '${loadTextContent('../queries/lag.kql')}${ofStreams}'
    visualization: 'timechart'
    width: '30'
  }
  {
    row: 1
    title: 'Failing attempts, and what to do'
    query: '${loadTextContent('../queries/failing.kql')}${ofStreams}'
    visualization: 'table'
    width: '40'
  }
  {
    row: 2
    title: 'Events published, by action'
    query: loadTextContent('../queries/events.kql')
    visualization: 'timechart'
    width: '25'
  }
  {
    row: 2
    title: 'Quarantined events, by reason'
    query: '${loadTextContent('../queries/quarantine.kql')}${ofStreams}'
    visualization: 'timechart'
    width: '25'
  }
  {
    row: 2
    title: 'TTL headroom, hours'
    query: '${loadTextContent('../queries/headroom.kql')}${ofStreams}'
    visualization: 'timechart'
    width: '25'
  }
  {
    row: 2
    title: 'Age of the oldest change that was not passed, seconds'
    query: loadTextContent('../queries/unpublished.kql')
    visualization: 'timechart'
    width: '25'
  }
  {
    row: 3
    title: 'Documents received from the change feed'
    query: loadTextContent('../queries/documents.kql')
    visualization: 'timechart'
    width: '50'
  }
  {
    row: 3
    title: 'Sends: count, events per send, milliseconds'
    query: loadTextContent('../queries/sends.kql')
    visualization: 'timechart'
    width: '50'
  }
  {
    row: 6
    title: 'Work to do, but nothing received (last 30 minutes; empty is good)'
    query: '${replace(loadTextContent('../queries/silent.kql'), '"$(stream)", "$(container)"', join(map(streams, each => '"${each.name}", "${each.container}"'), ', '))}${ofStreams}'
    visualization: 'table'
    width: '20'
  }
  {
    row: 6
    title: 'Documents that the host cannot deliver, by lease (empty is good)'
    query: loadTextContent('../queries/undelivered.kql')
    visualization: 'table'
    width: '20'
  }
  {
    row: 6
    title: 'Errors of the Functions host'
    query: loadTextContent('../queries/host.kql')
    visualization: 'table'
    width: '20'
  }
  {
    row: 6
    title: 'Telemetry dropped beyond the daily quota (empty is good)'
    query: loadTextContent('../queries/quota.kql')
    visualization: 'table'
    width: '20'
  }
  {
    row: 6
    title: 'The app runs without functions (empty is good)'
    query: loadTextContent('../queries/unloaded.kql')
    visualization: 'table'
    width: '20'
  }
]

var metricPanels = [
  {
    row: 4
    title: 'Topic: incoming and outgoing messages'
    resourceType: serviceBus
    resourceIds: serviceBusNamespaceIds
    metrics: [
      union({ namespace: serviceBus, metric: '${serviceBus}--IncomingMessages', aggregation: total }, lines)
      union({ namespace: serviceBus, metric: '${serviceBus}--OutgoingMessages', aggregation: total }, lines)
    ]
    filters: ofTheTopic
    width: '25'
  }
  {
    row: 4
    title: 'Topic: active and dead-lettered messages'
    resourceType: serviceBus
    resourceIds: serviceBusNamespaceIds
    metrics: [
      union({ namespace: serviceBus, metric: '${serviceBus}--ActiveMessages', aggregation: average }, lines)
      union({ namespace: serviceBus, metric: '${serviceBus}--DeadletteredMessages', aggregation: maximum }, lines)
    ]
    filters: ofTheTopic
    width: '25'
  }
  {
    row: 4
    title: 'Topic: size in bytes'
    resourceType: serviceBus
    resourceIds: serviceBusNamespaceIds
    metrics: [
      union({ namespace: serviceBus, metric: '${serviceBus}--Size', aggregation: maximum }, lines)
    ]
    filters: ofTheTopic
    width: '25'
  }
  {
    row: 4
    title: 'Service Bus: throttled requests'
    resourceType: serviceBus
    resourceIds: serviceBusNamespaceIds
    metrics: [
      { namespace: serviceBus, metric: '${serviceBus}--ThrottledRequests', aggregation: total }
    ]
    filters: []
    width: '25'
  }
  {
    row: 5
    title: 'Cosmos DB: requests by status (429: throttled)'
    resourceType: cosmos
    resourceIds: [cosmosAccountId]
    metrics: [
      { namespace: cosmos, metric: '${cosmos}-Requests-TotalRequests', aggregation: counted, splitBy: 'StatusCode' }
    ]
    filters: []
    width: '34'
  }
  {
    row: 5
    title: 'Cosmos DB: request units by container'
    resourceType: cosmos
    resourceIds: [cosmosAccountId]
    metrics: [
      { namespace: cosmos, metric: '${cosmos}-Requests-TotalRequestUnits', aggregation: total, splitBy: 'CollectionName' }
    ]
    filters: []
    width: '33'
  }
  {
    row: 5
    title: 'Cosmos DB: share of provisioned request units (not with Serverless)'
    resourceType: cosmos
    resourceIds: [cosmosAccountId]
    metrics: [
      { namespace: cosmos, metric: '${cosmos}-Requests-NormalizedRUConsumption', aggregation: maximum }
    ]
    filters: []
    width: '33'
  }
]

var logItems = [for panel in concat(streamPanels, logPanels): {
  row: panel.row
  item: {
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
  }
}]

var metricItems = [for panel in metricPanels: {
  row: panel.row
  item: {
    type: 10
    name: panel.title
    customWidth: panel.width
    content: {
      version: 'MetricsItem/2.0'
      chartId: guid(panel.title)
      title: panel.title
      size: 0
      chartType: 2
      resourceType: panel.resourceType
      metricScope: 0
      resourceIds: panel.resourceIds
      timeContextFromParameter: 'TimeRange'
      metrics: panel.metrics
      filters: panel.filters
      gridSettings: {
        rowLimit: 10000
      }
    }
  }
}]

var panels = concat(logItems, metricItems)
var rows = [for number in [1, 2, 3, 4, 5, 6]: map(filter(panels, panel => panel.row == number), panel => panel.item)]

var head = [
  {
    type: 1
    name: 'head'
    content: {
      json: 'Topic **${join(entities, '**, **')}**, published from container **${join(outboxContainers, '**, **')}**. Runbook: ${runbook}'
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

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(resourceGroup().id, resourceToken, 'workbook')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Outbox Relay'
    category: 'workbook'
    sourceId: applicationInsightsId
    serializedData: string({ version: 'Notebook/1.0', items: concat(head, flatten(rows)) })
  }
}

output workbookId string = workbook.id
