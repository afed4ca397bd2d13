metadata description = 'What each resource says about itself, sent to the workspace.'

param workspaceId string
param cosmosAccountName string
param serviceBusNamespaceName string
param storageAccountName string
param functionAppName string

var settingName = 'to-log-analytics'
var allMetrics = [
  {
    category: 'AllMetrics'
    enabled: true
  }
]

resource cosmos 'Microsoft.DocumentDB/databaseAccounts@2026-03-15' existing = {
  name: cosmosAccountName
}

resource serviceBus 'Microsoft.ServiceBus/namespaces@2026-01-01' existing = {
  name: serviceBusNamespaceName
}

resource storage 'Microsoft.Storage/storageAccounts@2025-08-01' existing = {
  name: storageAccountName
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-08-01' existing = {
  parent: storage
  name: 'default'
}

resource functionApp 'Microsoft.Web/sites@2025-03-01' existing = {
  name: functionAppName
}

// Not DataPlaneRequests: one row for each request of the change feed would cost more than the outbox. Summed up over five
// minutes (a category in preview) it tells whether anything is written, which the alert of a silent relay asks.
resource fromCosmos 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: settingName
  scope: cosmos
  properties: {
    workspaceId: workspaceId
    logAnalyticsDestinationType: 'Dedicated'
    logs: [
      {
        category: 'ControlPlaneRequests'
        enabled: true
      }
      {
        category: 'PartitionKeyStatistics'
        enabled: true
      }
      {
        category: 'DataPlaneRequests5M'
        enabled: true
      }
    ]
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
