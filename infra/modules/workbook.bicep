metadata description = 'What an operator opens first.'

param location string
param tags object
param resourceToken string
param applicationInsightsId string
param workspaceId string
param serviceBusNamespaceId string
param topicName string
param cosmosAccountId string
param functionAppId string

var content = {
  version: 'Notebook/1.0'
  items: [
    {
      type: 1
      name: 'where'
      content: {
        json: 'Topic ${topicName} of ${serviceBusNamespaceId}, fed from ${cosmosAccountId} by ${functionAppId}; logs in ${workspaceId}.'
      }
    }
  ]
}

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(resourceGroup().id, resourceToken, 'workbook')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Outbox Relay'
    category: 'workbook'
    sourceId: applicationInsightsId
    serializedData: string(content)
  }
}

output workbookId string = workbook.id
