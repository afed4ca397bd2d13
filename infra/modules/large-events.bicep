metadata description = 'The storage account with the contents of large events (RELAY_LARGE), which nothing but its lifecycle rule deletes.'

param name string
param location string
param tags object
param container string
param zoneRedundant bool
param publicAccess bool

@description('Days after which a content is deleted, counted from when it was last written.')
param keptInDays int

@description('Whether to lock the account against deletion. Requires Microsoft.Authorization/locks/write.')
param lockAccount bool
param workspaceId string

@description('Resource id and principal id of the relay\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

@description('Principal ids of operators, whose replays and releases write contents as the relay does.')
param operatorPrincipalIds array
param operatorPrincipalType string

@description('Principal ids of consumers, who read contents.')
param readerPrincipalIds array

// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/storage
var blobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
var blobDataReader = '2a2b9908-6ea1-4ae2-8e65-a410df84e7d1'

// Not the account of the Functions host: consumers get into this one, and whoever writes to that one replaces the app.
resource account 'Microsoft.Storage/storageAccounts@2025-01-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: zoneRedundant ? 'Standard_ZRS' : 'Standard_LRS'
  }
  properties: {
    allowSharedKeyAccess: false
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    defaultToOAuthAuthentication: true
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: publicAccess ? 'Enabled' : 'Disabled'
    networkAcls: {
      defaultAction: publicAccess ? 'Allow' : 'Deny'
      bypass: 'None'
    }
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-01-01' = {
  parent: account
  name: 'default'
}

resource contents 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-01-01' = {
  parent: blobs
  name: container
  properties: {
    publicAccess: 'None'
  }
}

// By modification: a retry writes the content again, and the message that is then accepted needs it from then on.
resource lifecycle 'Microsoft.Storage/storageAccounts/managementPolicies@2025-01-01' = {
  parent: account
  name: 'default'
  properties: {
    policy: {
      rules: [
        {
          name: 'delete-large-events'
          enabled: true
          type: 'Lifecycle'
          definition: {
            filters: {
              blobTypes: [
                'blockBlob'
              ]
              prefixMatch: [
                '${container}/'
              ]
            }
            actions: {
              baseBlob: {
                delete: {
                  daysAfterModificationGreaterThan: keptInDays
                }
              }
            }
          }
        }
      ]
    }
  }
}

resource lock 'Microsoft.Authorization/locks@2020-05-01' = if (lockAccount) {
  name: 'keep-large-events'
  scope: account
  properties: {
    level: 'CanNotDelete'
    notes: 'Holds the contents of events whose messages have only their addresses. Without it they are lost.'
  }
}

// Records who deletes a content. Writes and reads are not recorded.
resource fromBlobs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-log-analytics'
  scope: blobs
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'StorageDelete'
        enabled: true
      }
    ]
  }
}

resource relayMayWrite 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(contents.id, relayIdentityId, blobDataContributor)
  scope: contents
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataContributor)
    principalId: relayPrincipalId
    principalType: 'ServicePrincipal'
  }
}

resource operatorsMayWrite 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in operatorPrincipalIds: {
  name: guid(contents.id, principalId, blobDataContributor)
  scope: contents
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataContributor)
    principalId: principalId
    principalType: operatorPrincipalType
  }
}]

resource consumersMayRead 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in readerPrincipalIds: {
  name: guid(contents.id, principalId, blobDataReader)
  scope: contents
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataReader)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

output id string = account.id
output blobEndpoint string = account.properties.primaryEndpoints.blob
