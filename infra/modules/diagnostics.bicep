metadata description = 'Diagnostic settings: the logs and metrics that each resource sends to the workspace.'

param workspaceId string

@description('Empty for an account whose diagnostic settings are not this deployment\'s.')
param cosmosAccountName string

@description('Empty for a namespace whose diagnostic settings are not this deployment\'s.')
param serviceBusNamespaceName string
param storageAccountName string
param functionAppName string

@description('Whether to export five-minute summaries of Cosmos DB requests (DataPlaneRequests5M, a category in preview).')
param summarizeWrites bool

var settingName = 'to-log-analytics'
var allMetrics = [
  {
    category: 'AllMetrics'
    enabled: true
  }
]

resource cosmos 'Microsoft.DocumentDB/databaseAccounts@2025-04-15' existing = if (!empty(cosmosAccountName)) {
  name: cosmosAccountName
}

resource serviceBus 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = if (!empty(serviceBusNamespaceName)) {
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

// Not DataPlaneRequests, whose row for each change feed request would cost more than the outbox. The five-minute summaries show
// whether the outbox is written to, which the alert silent uses.
var summaries = summarizeWrites ? [{ category: 'DataPlaneRequests5M', enabled: true }] : []

resource fromCosmos 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (!empty(cosmosAccountName)) {
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

resource fromServiceBus 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (!empty(serviceBusNamespaceName)) {
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

// Records who replaces the deployed package. Reads are not recorded.
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

// The host's own log arrives even if the app's telemetry does not.
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
