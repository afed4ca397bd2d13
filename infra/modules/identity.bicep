metadata description = 'The identity of the function app, to which all its roles are assigned.'

param name string
param location string
param tags object

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: name
  location: location
  tags: tags
}

output clientId string = identity.properties.clientId
output principalId string = identity.properties.principalId
