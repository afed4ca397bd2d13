metadata description = 'The console in Azure Container Apps, behind the platform\'s authentication.'

param name string
param environmentName string
param location string
param tags object

@description('Resource id of the console\'s identity, which also pulls the image.')
param identityId string
param image string

@description('Host name of the registry that the identity pulls from; empty for a public image.')
param registryName string

@description('Its address, which is known only when it is deployed.')
param registryServer string
param signInClientId string
param groupObjectIds array
param allowedIpRanges array

@description('Settings of the relay and of the console, by name.')
param consoleSettings object

resource consoleEnvironment 'Microsoft.App/managedEnvironments@2025-01-01' = {
  name: environmentName
  location: location
  tags: tags
  properties: {
    workloadProfiles: [
      {
        name: 'Consumption'
        workloadProfileType: 'Consumption'
      }
    ]
  }
}

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
    environmentId: consoleEnvironment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      registries: empty(registryName) ? [] : [{ server: registryServer, identity: identityId }]
      ingress: {
        external: true
        allowInsecure: false
        targetPort: 8080
        transport: 'http'
        ipSecurityRestrictions: map(allowedIpRanges, range => { name: 'allowed-${replace(replace(range, '.', '-'), '/', '-')}', action: 'Allow', ipAddressRange: range })
      }
    }
    template: {
      containers: [
        {
          name: 'console'
          image: image
          // Not on the loopback address: there, the console would not ask for who is signed in.
          command: ['python', '-m', 'relay', 'console', '--host', '0.0.0.0', '--port', '8080']
          env: map(items(consoleSettings), setting => { name: setting.key, value: setting.value })
          resources: {
            cpu: json('0.25')
            memory: '0.5Gi'
          }
        }
      ]
      // Each replica would read the outbox for itself. An open page keeps it running; without one, it ends.
      scale: {
        minReplicas: 0
        maxReplicas: 1
      }
    }
  }
}

// Runs in front of the console, in each replica: it signs people in, and sets the headers without which the console answers 401.
// Headers of these names that come from outside are removed.
// https://learn.microsoft.com/azure/container-apps/authentication
resource signIn 'Microsoft.App/containerApps/authConfigs@2025-01-01' = {
  parent: app
  name: 'current'
  properties: {
    platform: {
      enabled: true
    }
    globalValidation: {
      unauthenticatedClientAction: 'RedirectToLoginPage'
      redirectToProvider: 'azureactivedirectory'
    }
    httpSettings: {
      requireHttps: true
    }
    identityProviders: {
      azureActiveDirectory: {
        enabled: true
        // Without a client secret, people are signed in by an ID token (implicit flow): the console calls nothing on their behalf.
        registration: {
          clientId: signInClientId
          openIdIssuer: '${environment().authentication.loginEndpoint}${subscription().tenantId}/v2.0'
        }
        validation: {
          allowedAudiences: [
            signInClientId
          ]
          defaultAuthorizationPolicy: {
            allowedPrincipals: {
              groups: groupObjectIds
            }
          }
        }
      }
    }
  }
}

output address string = 'https://${app.name}.${consoleEnvironment.properties.defaultDomain}/'
