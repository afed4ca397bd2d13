metadata description = 'The storage account of the Functions host, for its locks and the deployed package. It contains no events.'

param name string
param location string
param tags object
param deploymentContainer string
param zoneRedundant bool
param publicAccess bool

@description('Resource id and principal id of the function app\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

// Storage Blob Data Owner, which the Functions host needs for AzureWebJobsStorage and to read its package.
// https://learn.microsoft.com/azure/azure-functions/functions-reference#connecting-to-host-storage-with-an-identity
var storageBlobDataOwner = 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'

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

resource deployments 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-01-01' = {
  parent: blobs
  name: deploymentContainer
  properties: {
    publicAccess: 'None'
  }
}

resource relayMayUseBlobs 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, relayIdentityId, storageBlobDataOwner)
  scope: account
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataOwner)
    principalId: relayPrincipalId
    principalType: 'ServicePrincipal'
  }
}

output id string = account.id
output blobEndpoint string = account.properties.primaryEndpoints.blob
