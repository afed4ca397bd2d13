metadata description = 'What other modules need to know about a Service Bus namespace, which may be in another resource group.'

param name string

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: name
}

output id string = namespace.id
output fullyQualifiedNamespace string = replace(replace(namespace.properties.serviceBusEndpoint, 'https://', ''), ':443/', '')
