metadata description = 'A Service Bus namespace without key authentication. modules/topic.bicep creates the topic in it.'

param name string
param location string
param tags object

@allowed([
  'Standard'
  'Premium'
])
param sku string

@description('Messaging units of a Premium namespace: 1, 2, 4, 8 or 16.')
param messagingUnits int
param publicAccess bool

var standardSku = {
  name: 'Standard'
  tier: 'Standard'
}
var premiumSku = {
  name: 'Premium'
  tier: 'Premium'
  capacity: messagingUnits
}

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: name
  location: location
  tags: tags
  sku: sku == 'Premium' ? premiumSku : standardSku
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
    publicNetworkAccess: publicAccess ? 'Enabled' : 'Disabled'
  }
}
