metadata description = 'The relay as a plain worker in Azure Container Apps: replicas that share the shards of an SQL feed. It has no HTTP endpoint.'

param name string
param environmentName string
param location string
param tags object

@description('Resource id and client id of the user-assigned identity.')
param identityId string
param identityClientId string

@description('The image, built from Dockerfile, with its digest.')
param image string

@description('Host name of the registry that the identity pulls from; empty for a public image.')
param registryName string

@description('Its address, which is known only when it is deployed.')
param registryServer string
param applicationInsightsConnectionString string

@description('Settings of the relay, by name (docs/settings.md).')
param relaySettings object

@description('Number of replicas, 1 or more. With 2, the second takes over within seconds when the first ends.')
param minReplicas int

@description('With more than minReplicas, replicas are added while they use more than 70 % of their processor.')
param maxReplicas int

@description('Cores of a replica, such as 0.5, and memory, which the Consumption profile ties to it: 1Gi for 0.5.')
param cpu string
param memory string

@description('Seconds between SIGTERM and SIGKILL: more than the relay waits for the pages under way, which is SQL_CLAIM_S.')
param terminationGracePeriodSeconds int
param zoneRedundant bool

@description('Id of the subnet of the environment; empty for none.')
param subnetId string

var network = empty(subnetId) ? {} : { vnetConfiguration: { infrastructureSubnetId: subnetId, internal: true } }

// The identity of a scale rule is limited to Azure's own queues: with the scalers postgresql and mssql it deletes their
// connection, and the app keeps its number of replicas for good. They would need a password.
// https://github.com/microsoft/azure-container-apps/issues/1786
var busy = {
  name: 'busy'
  custom: {
    type: 'cpu'
    metadata: {
      type: 'Utilization'
      value: '70'
    }
  }
}

var identitySettings = {
  SQL__credential: 'managedidentity'
  SQL__clientId: identityClientId
  SERVICEBUS__credential: 'managedidentity'
  SERVICEBUS__clientId: identityClientId
  APPLICATIONINSIGHTS_CONNECTION_STRING: applicationInsightsConnectionString
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identityClientId};Authorization=AAD'
}

// azure-monitor: sent through a diagnostic setting. The destination log-analytics needs the workspace's key, which is disabled.
resource environment 'Microsoft.App/managedEnvironments@2025-01-01' = {
  name: environmentName
  location: location
  tags: tags
  properties: union({
    appLogsConfiguration: {
      destination: 'azure-monitor'
    }
    workloadProfiles: [
      {
        name: 'Consumption'
        workloadProfileType: 'Consumption'
      }
    ]
    zoneRedundant: zoneRedundant
  }, network)
}

// No ingress, so no probes: a replica whose process ends is started again, and one that hangs loses its shards to another after
// SQL_CLAIM_S.
resource app 'Microsoft.App/containerApps@2025-01-01' = {
  name: name
  location: location
  tags: tags
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    environmentId: environment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      registries: empty(registryName) ? [] : [{ server: registryServer, identity: identityId }]
    }
    template: {
      terminationGracePeriodSeconds: terminationGracePeriodSeconds
      containers: [
        {
          name: 'relay'
          image: image
          env: map(items(union(identitySettings, relaySettings)), setting => { name: setting.key, value: setting.value })
          resources: {
            cpu: json(cpu)
            memory: memory
          }
        }
      ]
      scale: {
        minReplicas: minReplicas
        maxReplicas: maxReplicas
        rules: maxReplicas > minReplicas ? [busy] : []
      }
    }
  }
}

output id string = app.id
output name string = app.name
output environmentId string = environment.id
