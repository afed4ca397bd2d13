// A trial: costs almost nothing while idle, and is reachable from any network with an assigned role.
using './main.bicep'

param environmentName = 'trial'
param serviceBusSku = 'Standard'
param cosmosCapacityMode = 'Serverless'
param cosmosBackupTier = 'Continuous7Days'
param duplicateDetectionWindow = 'P1D'
// Without locks the whole resource group can be deleted.
param lockContainers = false

param subscriptions = [
  {
    name: 'all'
    receiverPrincipalIds: []
  }
  {
    name: 'names'
    action: 'ContactNameUpdatedEvent'
    receiverPrincipalIds: []
  }
]

param writerPrincipalIds = []
// Object ids of users: az ad signed-in-user show --query id -o tsv. For groups, change the type below to Group.
param operatorPrincipalIds = []
param operatorPrincipalType = 'User'
param operatorEmails = []
param runbook = 'docs/runbook.md'

// What relay.toml needs, as python -m infra.parameters writes it.
param destinations = loadJsonContent('relay.json').destinations
param streams = loadJsonContent('relay.json').streams
