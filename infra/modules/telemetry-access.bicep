metadata description = 'Lets the relay\'s identity send telemetry to Application Insights.'

param applicationInsightsName string

@description('Resource id and principal id of the relay\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/monitor
var monitoringMetricsPublisher = '3913510d-42f4-4e42-8a64-420c390055eb'

resource applicationInsights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: applicationInsightsName
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

output id string = applicationInsights.id
// Contains the endpoint. With local authentication off, it grants no access.
output connectionString string = applicationInsights.properties.ConnectionString
