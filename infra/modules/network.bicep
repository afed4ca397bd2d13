metadata description = 'A virtual network: one subnet for what the function app sends, one for the private endpoints.'

param name string
param location string
param tags object

@description('At least a /25: each of the two subnets takes a /26.')
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
          // Flex Consumption wants this delegation, not the Microsoft.Web/serverFarms of the other plans.
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
