targetScope = 'resourceGroup'

metadata name = 'Console of the Outbox Relay'
metadata description = 'The page that shows where events are, as a container app that only people of your directory can open. Deploy it into the resource group of main.bicep or sql.bicep.'

import { resourceName } from 'modules/names.bicep'

@maxLength(32)
@description('Name of the container app.')
param name string = 'ca-relay-console'
@description('Region of every resource.')
param location string = resourceGroup().location

@description('Additional tags for every resource.')
param tags object = {}

@description('The image, built from Dockerfile, such as myregistry.azurecr.io/outbox-relay@sha256:…. With the digest, every replica runs the same image; with the tag alone, what the tag names when it starts.')
param image string

@description('Name of the container registry of this resource group that has the image; empty for a public image.')
param registryName string = ''

// Who may open it

@description('Client id of an app registration of Microsoft Entra ID that issues ID tokens to https://<address of the app>/.auth/login/aad/callback.')
param signInClientId string

@minLength(1)
@description('Object ids of the groups whose members may open the page. The registration must add group claims to its tokens.')
param groupObjectIds array

@description('IPv4 ranges from which the page can be reached, such as 203.0.113.0/24; empty for all.')
param allowedIpRanges array = []

// What it reads

@description('Name of the account that has the outbox; empty for an outbox in SQL.')
param cosmosAccountName string = ''

@description('Resource group of cosmosAccountName.')
param cosmosResourceGroup string = resourceGroup().name
param cosmosDatabase string = 'outbox'

@description('Name of the Service Bus namespace.')
param serviceBusName string

@description('Resource group of serviceBusName.')
param serviceBusResourceGroup string = resourceGroup().name
param serviceBusTopic string = 'domain-events'

@description('The streams of relay.toml, as python -m infra.parameters writes them (docs/deployment.md#with-relaytoml).')
param streams array = loadJsonContent('relay.json').streams

@description('The topics and queues that relay.toml names; likewise.')
param destinations array = loadJsonContent('relay.json').destinations

@description('The namespaces of destinations with another connection than SERVICEBUS, as the parameter of main.bicep and sql.bicep.')
param otherNamespaces array = []

@description('Let the console read how many messages each subscription and queue has, and peek dead letters: it gets Azure Service Bus Data Receiver on the topics and queues. Without it, it has no right on Service Bus, and shows neither subscriptions nor dead letters.')
param showSubscriptions bool = true

@description('Further settings by name (docs/settings.md, docs/console.md), such as SQL, SQL_FEED and SQL_SHARDS for an outbox in SQL, or CONSOLE_TRACE_URL.')
param settings object = {}

var identityName = 'id-${name}'
var identityId = resourceId('Microsoft.ManagedIdentity/userAssignedIdentities', identityName)
var allTags = union({ application: 'outbox-relay' }, tags)
var onCosmos = !empty(cosmosAccountName)
// Those of the streams that are in Cosmos DB: in SQL, rights are granted in the database.
var inCosmos = filter(streams, each => empty(each.?feed))
var databases = onCosmos ? union([cosmosDatabase], map(inCosmos, each => each.?database ?? cosmosDatabase)) : []

// Every namespace, the app's own first.
var namespaces = concat([
  {
    connection: 'SERVICEBUS'
    name: serviceBusName
    group: serviceBusResourceGroup
  }
], map(otherNamespaces, each => {
  connection: each.connection
  name: each.name
  group: each.?resourceGroup ?? resourceGroup().name
}))
var complete = map(destinations, each => {
  name: each.name
  isQueue: each.?kind == 'queue'
  connection: each.?connection ?? 'SERVICEBUS'
  entity: each.?entity ?? serviceBusTopic
})
var strayed = filter(complete, each => !contains(map(namespaces, namespace => namespace.connection), each.connection))
var allowedDestinations = empty(strayed) ? complete : fail('otherNamespaces lacks the connection of ${join(map(strayed, each => each.name), ', ')}')

// Addresses in Azure Resource Manager, where messages are counted.
var otherSettings = union(
  toObject(otherNamespaces, each => '${each.connection}__fullyQualifiedNamespace', each => replace(messaging[0].outputs.fullyQualifiedNamespace, serviceBusName, each.name)),
  toObject(otherNamespaces, each => '${each.connection}__credential', each => 'managedidentity'),
  toObject(otherNamespaces, each => '${each.connection}__clientId', each => identity.outputs.clientId),
  toObject(otherNamespaces, each => 'CONSOLE_${each.connection}_URL', each => uri(environment().resourceManager, resourceId(each.?resourceGroup ?? resourceGroup().name, 'Microsoft.ServiceBus/namespaces', each.name)))
)
var cosmosSettings = onCosmos ? {
  COSMOS__accountEndpoint: outbox[0].outputs.endpoint
  COSMOS__credential: 'managedidentity'
  COSMOS__clientId: identity.outputs.clientId
  COSMOS_DATABASE: cosmosDatabase
} : {
  SQL__credential: 'managedidentity'
  SQL__clientId: identity.outputs.clientId
}

// Not the relay's identity: in Cosmos DB, the console's can write nothing.
module identity 'modules/identity.bicep' = {
  name: 'console-identity'
  params: {
    name: identityName
    location: location
    tags: allTags
  }
}

// Role assignments of one account are made one after the other.
@batchSize(1)
module outbox 'modules/console-outbox.bicep' = [for database in databases: {
  name: database == cosmosDatabase ? 'outbox-${name}' : 'outbox-${uniqueString(database)}-${name}'
  scope: resourceGroup(cosmosResourceGroup)
  params: {
    accountName: cosmosAccountName
    database: database
    consoleIdentityId: identityId
    consolePrincipalId: identity.outputs.principalId
  }
}]

module messaging 'modules/console-messaging.bicep' = [for namespace in namespaces: {
  name: namespace.connection == 'SERVICEBUS' ? 'messaging-${name}' : 'messaging-${uniqueString(namespace.name)}-${name}'
  scope: resourceGroup(namespace.group)
  params: {
    namespaceName: namespace.name
    topics: showSubscriptions ? map(filter(allowedDestinations, each => each.connection == namespace.connection && !each.isQueue), each => each.entity) : []
    queues: showSubscriptions ? map(filter(allowedDestinations, each => each.connection == namespace.connection && each.isQueue), each => each.entity) : []
    consoleIdentityId: identityId
    consolePrincipalId: identity.outputs.principalId
  }
}]

module registryAccess 'modules/registry-access.bicep' = if (!empty(registryName)) {
  name: 'console-registry-access'
  params: {
    registryName: registryName
    relayIdentityId: identityId
    relayPrincipalId: identity.outputs.principalId
  }
}

module console 'modules/console.bicep' = {
  name: 'console'
  params: {
    name: name
    environmentName: 'cae-${name}'
    location: location
    tags: allTags
    identityId: identityId
    image: image
    registryName: registryName
    registryServer: empty(registryName) ? '' : registryAccess!.outputs.server
    signInClientId: signInClientId
    groupObjectIds: groupObjectIds
    allowedIpRanges: allowedIpRanges
    consoleSettings: union({
      SERVICEBUS__fullyQualifiedNamespace: messaging[0].outputs.fullyQualifiedNamespace
      SERVICEBUS__credential: 'managedidentity'
      SERVICEBUS__clientId: identity.outputs.clientId
      SERVICEBUS_TOPIC: serviceBusTopic
      CONSOLE_TOPIC_URL: '${uri(environment().resourceManager, resourceId(serviceBusResourceGroup, 'Microsoft.ServiceBus/namespaces', serviceBusName))}/topics/${resourceName(serviceBusTopic)}'
    }, otherSettings, cosmosSettings, settings)
  }
}

output address string = console.outputs.address
output identityName string = identityName
