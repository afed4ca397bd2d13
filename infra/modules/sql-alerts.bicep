metadata description = 'Alert rules of a relay with an outbox in SQL. docs/runbook.md has a section for each rule.'

param location string
param tags object
param resourceToken string
param workspaceId string

@description('The Service Bus namespaces: as relay-alerts.bicep describes.')
param namespaces array
param workerId string

@description('Whether the worker has several streams.')
param severalStreams bool

@description('Number of shards of all streams, each of which some replica must read.')
param shards int

@description('E-mail addresses to notify. Without any, alerts appear only in the portal.')
param operatorEmails array

@description('Address of docs/runbook.md, to which each alert links.')
param runbook string

@description('Thresholds to override, by name.')
param thresholds object

// Reasons for the values that are the same with an outbox in Cosmos DB: alerts.bicep.
var defaults = {
  lagSeconds: 300
  unpublishedSeconds: 300
  // A replica that ends for want of a setting or a right is started again and again, after longer and longer pauses.
  restarts: 5
  quarantined: 0
  failedAttempts: 5
  deadLetters: 0
  throttledRequests: 100
  activeMessages: 1000
  connections: 4000
  topicSizePercent: 60
}
var merged = union(defaults, thresholds)
var limits = length(merged) > length(defaults) ? fail('alertThresholds has an unknown name; the known ones are: ${join(map(items(defaults), entry => entry.key), ', ')}') : merged

var logAlerts = [
  {
    name: 'unowned'
    says: 'No replica reads some shards of the outbox. Their events are not published.'
    severity: 1
    query: replace(loadTextContent('../queries/sql/unowned.kql'), '$(shards)', string(shards))
    measure: {}
    timeAggregation: 'Count'
    operator: 'GreaterThan'
    threshold: 0
    dimensions: []
    window: 'PT15M'
    frequency: 'PT5M'
    resolves: true
  }
]

var metricAlerts = [
  {
    name: 'restarting'
    says: 'Replicas of the worker end and are started again.'
    severity: 2
    resourceId: workerId
    metric: 'RestartCount'
    namespace: 'Microsoft.App/containerApps'
    // A replica's own count. A replica that runs well for long has few.
    timeAggregation: 'Maximum'
    threshold: limits.restarts
    dimensions: []
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

output actionGroupId string = rules.outputs.actionGroupId
