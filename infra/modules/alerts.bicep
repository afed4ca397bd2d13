metadata description = 'Who is told when the relay is in trouble.'

param location string
param tags object
param resourceToken string

param applicationInsightsId string
param workspaceId string
param serviceBusNamespaceId string
param topicName string
param cosmosAccountId string
param functionAppId string

@description('E-mail addresses; with none, alerts show in the portal alone.')
param operatorEmails array

resource operators 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: 'ag-relay-${resourceToken}'
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'relay'
    enabled: true
    emailReceivers: [for email in operatorEmails: {
      name: email
      emailAddress: email
      useCommonAlertSchema: true
    }]
  }
}

output actionGroupId string = operators.id
