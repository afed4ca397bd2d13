// A trial, reachable from any network with an assigned role. Idle, some 47 dollars a month (docs/capacity.md, An idle month): an
// always-ready instance, which alwaysReadyInstances = 0 saves, the alerts, and the namespace.
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
  // A sample, with one kind of event: what nobody receives for 14 days is dead-lettered, and raises an alert.
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
param trial = true
param operatorEmails = []
param runbook = 'docs/runbook.md'

// What relay.toml needs, as python -m infra.parameters writes it.
param destinations = loadJsonContent('relay.json').destinations
param streams = loadJsonContent('relay.json').streams
