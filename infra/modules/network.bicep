metadata description = 'A virtual network with one subnet for outbound traffic of the function app and one for private endpoints.'

param name string
param location string
param tags object

@description('At least a /25: each of the two subnets is a /26.')
param addressPrefix string

resource network 'Microsoft.Network/virtualNetworks@2025-05-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: {
      addressPrefixes: [
        addressPrefix
      ]
    }
    subnets: [
      {
        name: 'snet-integration'
        properties: {
          addressPrefix: cidrSubnet(addressPrefix, 26, 0)
          // Flex Consumption requires this delegation, other plans Microsoft.Web/serverFarms.
          // https://learn.microsoft.com/azure/azure-functions/flex-consumption-how-to#enable-virtual-network-integration
          delegations: [
            {
              name: 'flex-consumption'
              properties: {
                serviceName: 'Microsoft.App/environments'
              }
            }
          ]
        }
      }
      {
        name: 'snet-private-endpoints'
        properties: {
          addressPrefix: cidrSubnet(addressPrefix, 26, 1)
          privateEndpointNetworkPolicies: 'Disabled'
        }
      }
    ]
  }
}

output id string = network.id
output integrationSubnetId string = '${network.id}/subnets/snet-integration'
output endpointSubnetId string = '${network.id}/subnets/snet-private-endpoints'
