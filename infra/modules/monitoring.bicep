metadata description = 'A Log Analytics workspace, and Application Insights on it with Entra authentication only.'

param workspaceName string
param applicationInsightsName string

@description('Whether to create Application Insights; otherwise it exists in applicationInsightsGroup, and stays as it is.')
param newApplicationInsights bool
param applicationInsightsGroup string
param location string
param tags object

@description('Resource id of an existing workspace to use instead of a new one; empty for a new one.')
param existingWorkspaceId string
param retentionInDays int

@description('Daily quota of the workspace in gigabytes; -1 for no limit.')
param dailyQuotaInGigabytes int

@description('Drop spans of the Functions host\'s own successful requests before they are stored.')
param dropHostSpans bool

@description('Resource id and principal id of the function app\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

var workspaceId = empty(existingWorkspaceId) ? workspace.id : existingWorkspaceId

var workspaceProperties = {
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

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-07-01' = if (empty(existingWorkspaceId)) {
  name: workspaceName
  location: location
  tags: tags
  properties: workspaceProperties
}

// A module, because the rule needs the workspace, and the workspace then the rule. An existing workspace may have its own rule.
module transformations 'log-transformations.bicep' = if (dropHostSpans && empty(existingWorkspaceId)) {
  name: 'log-transformations'
  params: {
    workspaceName: workspaceName
    workspaceId: workspace.id
    location: location
    tags: tags
    workspaceProperties: workspaceProperties
  }
}

resource applicationInsights 'Microsoft.Insights/components@2020-02-02' = if (newApplicationInsights) {
  name: applicationInsightsName
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspaceId
    DisableLocalAuth: true
  }
}

module access 'telemetry-access.bicep' = {
  name: 'telemetry-access-${uniqueString(relayIdentityId)}'
  scope: resourceGroup(applicationInsightsGroup)
  params: {
    applicationInsightsName: applicationInsightsName
    relayIdentityId: relayIdentityId
    relayPrincipalId: relayPrincipalId
  }
  dependsOn: [
    applicationInsights
  ]
}

output workspaceId string = workspaceId
output applicationInsightsId string = access.outputs.id
output applicationInsightsConnectionString string = access.outputs.connectionString
