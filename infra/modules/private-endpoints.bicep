metadata description = 'A private endpoint for each of several resources.'

param resourceToken string
param location string
param tags object
param networkName string
param networkId string
param subnetId string

@description('Each has a name, the id of its resource, and groupId and zoneName as in private-endpoint.bicep.')
param targets array

module endpoints 'private-endpoint.bicep' = [for target in targets: {
  name: 'endpoint-${target.name}'
  params: {
    name: 'pep-${target.name}-${resourceToken}'
    location: location
    tags: tags
    targetId: target.id
    groupId: target.groupId
    zoneName: target.zoneName
    networkName: networkName
    networkId: networkId
    subnetId: subnetId
  }
}]
