metadata description = 'What each resource says about itself, sent to the workspace.'

param workspaceId string
param cosmosAccountName string
param serviceBusNamespaceName string
param storageAccountName string
param functionAppName string

@description('Whether Cosmos DB sums up its requests over five minutes (DataPlaneRequests5M, a category in preview).')
param summarizeWrites bool

var settingName = 'to-log-analytics'
var allMetrics = [
  {
    category: 'AllMetrics'
    enabled: true
  }
]

resource cosmos 'Microsoft.DocumentDB/databaseAccounts@2025-04-15' existing = {
  name: cosmosAccountName
}

resource serviceBus 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: serviceBusNamespaceName
}

resource storage 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  name: storageAccountName
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-01-01' existing = {
  parent: storage
  name: 'default'
}

resource functionApp 'Microsoft.Web/sites@2025-03-01' existing = {
  name: functionAppName
}

// Not DataPlaneRequests: one row for each request of the change feed would cost more than the outbox. Summed up over five
// minutes it tells whether anything is written, which the alert of a silent relay asks where it can.
var summaries = summarizeWrites ? [{ category: 'DataPlaneRequests5M', enabled: true }] : []

resource fromCosmos 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: settingName
  scope: cosmos
  properties: {
    workspaceId: workspaceId
    logAnalyticsDestinationType: 'Dedicated'
    logs: concat([
      {
        category: 'ControlPlaneRequests'
        enabled: true
      }
      {
        category: 'PartitionKeyStatistics'
        enabled: true
      }
    ], summaries)
    metrics: allMetrics
  }
}

resource fromServiceBus 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: settingName
  scope: serviceBus
  properties: {
    workspaceId: workspaceId
    logAnalyticsDestinationType: 'Dedicated'
    logs: [
      {
        categoryGroup: 'allLogs'
        enabled: true
      }
    ]
    metrics: allMetrics
  }
}

// Who replaced the deployed package is worth knowing; who read it is not.
resource fromBlobs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: settingName
  scope: blobs
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'StorageWrite'
        enabled: true
      }
      {
        category: 'StorageDelete'
        enabled: true
      }
    ]
  }
}

// The host's own log: what is left to look at when the telemetry itself does not arrive.
resource fromFunctionApp 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: settingName
  scope: functionApp
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'FunctionAppLogs'
        enabled: true
      }
    ]
    metrics: allMetrics
  }
}
