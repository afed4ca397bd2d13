metadata description = 'Alert rules of a relay with an outbox in Cosmos DB. docs/runbook.md has a section for each rule.'

param location string
param tags object
param resourceToken string
param workspaceId string

@description('The Service Bus namespaces: as relay-alerts.bicep describes.')
param namespaces array
param cosmosAccountId string
param functionAppId string

@description('The streams of outboxes in Cosmos DB: each with its name, and the container that it reads.')
param streams array

@description('Whether the app has several streams, of which some may be in SQL.')
param severalStreams bool

@description('E-mail addresses to notify. Without any, alerts appear only in the portal.')
param operatorEmails array

@description('Address of docs/runbook.md, to which each alert links.')
param runbook string

@description('Thresholds to override, by name.')
param thresholds object

var defaults = {
  // Lag is less than a second normally, and tens of seconds after a cold start. Five minutes are a backlog that consumers notice.
  lagSeconds: 300
  // An event waits for less than a second. The outbox keeps it until its ttl ends; the leases of an instance that was lost are taken
  // over within 71 seconds, so five minutes are a lease that does not go on, or a backlog that consumers notice.
  unpublishedSeconds: 300
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
  // A namespace accepts 5000 connections and refuses more. An instance takes two; without relayPipelined, one for each sender.
  // https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
  connections: 4000
  // A full topic refuses sends. The margin is large because sessions fill the topic's partitions unevenly.
  topicSizePercent: 60
}
var merged = union(defaults, thresholds)
var limits = length(merged) > length(defaults) ? fail('alertThresholds has an unknown name; the known ones are: ${join(map(items(defaults), entry => entry.key), ', ')}') : merged

var logAlerts = [
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
    byStream: true
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
    query: replace(loadTextContent('../queries/silent.kql'), '"$(stream)", "$(container)"', join(map(streams, each => '"${each.name}", "${each.container}"'), ', '))
    measure: {}
    timeAggregation: 'Count'
    operator: 'GreaterThan'
    threshold: 0
    dimensions: ['Sign']
    byStream: true
    window: 'PT30M'
    frequency: 'PT15M'
    resolves: true
  }
  {
    name: 'unloaded'
    says: 'The app runs without its functions, or does not run. Nothing is published.'
    severity: 1
    query: loadTextContent('../queries/unloaded.kql')
    measure: {}
    timeAggregation: 'Count'
    operator: 'GreaterThan'
    threshold: 0
    dimensions: []
    // The host names the reason once, when it starts.
    window: 'PT30M'
    frequency: 'PT5M'
    resolves: true
  }
]

var metricAlerts = [
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
]

module rules 'relay-alerts.bicep' = {
  name: 'relay-alerts'
  params: {
    location: location
    tags: tags
    resourceToken: resourceToken
    workspaceId: workspaceId
    namespaces: namespaces
    severalStreams: severalStreams
    operatorEmails: operatorEmails
    runbook: runbook
    limits: limits
    logAlerts: logAlerts
    metricAlerts: metricAlerts
  }
}

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
          actionGroupId: rules.outputs.actionGroupId
        }
      ]
    }
  }
}

output actionGroupId string = rules.outputs.actionGroupId
