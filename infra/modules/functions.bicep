metadata description = 'The function app on Flex Consumption. It authenticates with its identity, and basic authentication for deployment is off.'

param name string
param planName string
param location string
param tags object

@description('Resource id and client id of the user-assigned identity.')
param identityId string
param identityClientId string
param storageBlobEndpoint string
param deploymentContainer string
param applicationInsightsConnectionString string

@description('Settings of the relay, by name (docs/settings.md).')
param relaySettings object

@description('The functions that a change feed triggers, one for each stream. Each has instances of its own.')
param functionNames array

@description('512, 2048 or 4096.')
param instanceMemoryMB int
param maximumInstanceCount int

@description('Number of always-ready instances. With 0 the app scales to zero when idle, and may not start again for the next change.')
param alwaysReadyInstances int
param zoneRedundant bool
param publicAccess bool

@description('Id of the subnet for outbound traffic; empty for none.')
param integrationSubnetId string

@description('Replace instances in batches, so that running attempts finish. In preview.')
param rollingUpdates bool

var alwaysReady = alwaysReadyInstances > 0 ? map(functionNames, name => { name: 'function:${name}', instanceCount: alwaysReadyInstances }) : []
var network = empty(integrationSubnetId) ? {} : { virtualNetworkSubnetId: integrationSubnetId }

// Omitted by default, because a region without the preview might reject the app. The default strategy is to recreate.
// https://learn.microsoft.com/azure/azure-functions/flex-consumption-site-updates
var updates = rollingUpdates ? { siteUpdateStrategy: { type: 'RollingUpdate' } } : {}

// Otherwise every library's logs are exported, including the exporter's own, so that each export causes more rows.
var loggerName = 'relay'

// Flex Consumption uses functionAppConfig instead of FUNCTIONS_WORKER_RUNTIME and FUNCTIONS_EXTENSION_VERSION.
// https://learn.microsoft.com/azure/azure-functions/functions-app-settings#flex-consumption-plan-deprecations
var hostSettings = {
  AzureWebJobsStorage__blobServiceUri: storageBlobEndpoint
  AzureWebJobsStorage__credential: 'managedidentity'
  AzureWebJobsStorage__clientId: identityClientId
  APPLICATIONINSIGHTS_CONNECTION_STRING: applicationInsightsConnectionString
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identityClientId};Authorization=AAD'
  // The platform chooses the worker. One from before azure-functions-runtime (4.34) reads the first two, a later one the last two.
  PYTHON_ENABLE_OPENTELEMETRY: 'true'
  PYTHON_AZURE_MONITOR_LOGGER_NAME: loggerName
  PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY: 'true'
  PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME: loggerName
}
var identitySettings = {
  COSMOS__credential: 'managedidentity'
  COSMOS__clientId: identityClientId
  SERVICEBUS__credential: 'managedidentity'
  SERVICEBUS__clientId: identityClientId
}

resource plan 'Microsoft.Web/serverfarms@2025-03-01' = {
  name: planName
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true
    zoneRedundant: zoneRedundant
  }
}

resource app 'Microsoft.Web/sites@2025-03-01' = {
  name: name
  location: location
  tags: union(tags, { 'azd-service-name': 'relay' })
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: union({
    serverFarmId: plan.id
    httpsOnly: true
    publicNetworkAccess: publicAccess ? 'Enabled' : 'Disabled'
    siteConfig: {
      minTlsVersion: '1.2'
      scmMinTlsVersion: '1.2'
      ftpsState: 'Disabled'
    }
    functionAppConfig: union({
      runtime: {
        name: 'python'
        version: '3.13'
      }
      deployment: {
        storage: {
          type: 'blobContainer'
          value: '${storageBlobEndpoint}${deploymentContainer}'
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identityId
          }
        }
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMB
        maximumInstanceCount: maximumInstanceCount
        alwaysReady: alwaysReady
      }
    }, updates)
  }, network)
}

resource settings 'Microsoft.Web/sites/config@2025-03-01' = {
  parent: app
  name: 'appsettings'
  properties: union(hostSettings, identitySettings, relaySettings)
}

resource noFtpPassword 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-03-01' = {
  parent: app
  name: 'ftp'
  properties: {
    allow: false
  }
}

resource noPublishingPassword 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-03-01' = {
  parent: app
  name: 'scm'
  properties: {
    allow: false
  }
}

output id string = app.id
output name string = app.name
