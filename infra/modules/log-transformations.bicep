metadata description = 'What the workspace drops before it stores and bills it: requests of the Functions host that succeeded.'

param workspaceName string
param workspaceId string
param location string
param tags object

@description('Properties of the workspace as it was deployed. They are given again with the link, as an update without them would reset them.')
param workspaceProperties object

// In OpenTelemetry mode the Functions host exports a span for each request that it makes itself: each poll of the change feed, each
// renewal of a lease, and its lock in the storage account. No setting of the host turns that off, and none of the queries reads them.
// Requests that fail stay. The workspace's quota counts what is left (https://learn.microsoft.com/azure/azure-monitor/logs/daily-cap).
resource rule 'Microsoft.Insights/dataCollectionRules@2024-03-11' = {
  name: 'dcr-${workspaceName}'
  location: location
  tags: tags
  kind: 'WorkspaceTransforms'
  properties: {
    destinations: {
      logAnalytics: [
        {
          name: 'workspace'
          workspaceResourceId: workspaceId
        }
      ]
    }
    dataFlows: [
      {
        streams: [
          'Microsoft-Table-AppDependencies'
        ]
        destinations: [
          'workspace'
        ]
        // On one line, and with the operators of https://learn.microsoft.com/azure/azure-monitor/data-collection/data-collection-transformations-kql
        transformKql: trim(loadTextContent('../transformations/dependencies.kql'))
      }
    ]
  }
}

resource linkedWorkspace 'Microsoft.OperationalInsights/workspaces@2025-07-01' = {
  name: workspaceName
  location: location
  tags: tags
  properties: union(workspaceProperties, { defaultDataCollectionRuleResourceId: rule.id })
}
