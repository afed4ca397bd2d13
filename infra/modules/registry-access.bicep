metadata description = 'Lets the relay\'s identity pull the image from a container registry of this resource group.'

param registryName string

@description('Resource id and principal id of the relay\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/containers
var acrPull = '7f951dda-4ed3-4680-a7ca-43fe172d538d'

resource registry 'Microsoft.ContainerRegistry/registries@2025-04-01' existing = {
  name: registryName
}

resource relayMayPull 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, relayIdentityId, acrPull)
  scope: registry
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', acrPull)
    principalId: relayPrincipalId
    principalType: 'ServicePrincipal'
  }
}

output server string = registry.properties.loginServer
