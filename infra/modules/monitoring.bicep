metadata description = 'Where telemetry goes: a Log Analytics workspace and Application Insights on it, which takes no instrumentation key for a password.'

param workspaceName string
param applicationInsightsName string
param location string
param tags object
param retentionInDays int

@description('Gigabytes a day that the workspace takes in, and no more until the next day; -1 for no limit.')
param dailyQuotaInGigabytes int

@description('Resource id and principal id of the identity of the function app. Names are made of the former, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/monitor
var monitoringMetricsPublisher = '3913510d-42f4-4e42-8a64-420c390055eb'

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-07-01' = {
  name: workspaceName
  location: location
  tags: tags
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: retentionInDays
    workspaceCapping: {
      dailyQuotaGb: dailyQuotaInGigabytes
    }
    features: {
      disableLocalAuth: true
      enableLogAccessUsingOnlyResourcePermissions: true
    }
  }
}

resource applicationInsights 'Microsoft.Insights/components@2020-02-02' = {
  name: applicationInsightsName
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: true
  }
}

resource relayMayPublish 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(applicationInsights.id, relayIdentityId, monitoringMetricsPublisher)
  scope: applicationInsights
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', monitoringMetricsPublisher)
    principalId: relayPrincipalId
    principalType: 'ServicePrincipal'
  }
}

output workspaceId string = workspace.id
output applicationInsightsId string = applicationInsights.id
output applicationInsightsName string = applicationInsights.name
// Says where to send, and with local authentication off admits nobody.
output applicationInsightsConnectionString string = applicationInsights.properties.ConnectionString
