metadata description = 'Diagnostic settings of a relay with an SQL outbox: the logs and metrics that each resource sends to the workspace.'

param workspaceId string

@description('Empty for a namespace whose diagnostic settings are not this deployment\'s.')
param serviceBusNamespaceName string
param environmentName string

@description('Name of the PostgreSQL server; empty with Azure SQL, and for a server whose diagnostic settings are not this deployment\'s.')
param postgresServerName string

@description('Name of the logical server of Azure SQL; empty with PostgreSQL, and for such a server.')
param azureSqlServerName string
param database string

var settingName = 'to-log-analytics'
var allMetrics = [
  {
    category: 'AllMetrics'
    enabled: true
  }
]

resource serviceBus 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = if (!empty(serviceBusNamespaceName)) {
  name: serviceBusNamespaceName
}

resource environment 'Microsoft.App/managedEnvironments@2025-01-01' existing = {
  name: environmentName
}

resource postgres 'Microsoft.DBforPostgreSQL/flexibleServers@2025-08-01' existing = if (!empty(postgresServerName)) {
  name: postgresServerName
}

resource azureSql 'Microsoft.Sql/servers@2025-01-01' existing = if (!empty(azureSqlServerName)) {
  name: azureSqlServerName
}

resource azureSqlDatabase 'Microsoft.Sql/servers/databases@2025-01-01' existing = if (!empty(azureSqlServerName)) {
  parent: azureSql
  name: database
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

// What the relay writes to standard error, and why a replica was started or ended.
resource fromEnvironment 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: settingName
  scope: environment
  properties: {
    workspaceId: workspaceId
    logAnalyticsDestinationType: 'Dedicated'
    logs: [
      {
        category: 'ContainerAppConsoleLogs'
        enabled: true
      }
      {
        category: 'ContainerAppSystemLogs'
        enabled: true
      }
    ]
    metrics: allMetrics
  }
}

resource fromPostgres 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (!empty(postgresServerName)) {
  name: settingName
  scope: postgres
  properties: {
    workspaceId: workspaceId
    logAnalyticsDestinationType: 'Dedicated'
    logs: [
      {
        category: 'PostgreSQLLogs'
        enabled: true
      }
    ]
    metrics: allMetrics
  }
}

resource fromAzureSql 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (!empty(azureSqlServerName)) {
  name: settingName
  scope: azureSqlDatabase
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'Errors'
        enabled: true
      }
      {
        category: 'Timeouts'
        enabled: true
      }
      {
        category: 'Blocks'
        enabled: true
      }
      {
        category: 'Deadlocks'
        enabled: true
      }
    ]
    metrics: allMetrics
  }
}
