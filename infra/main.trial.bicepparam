// A trial: costs almost nothing while idle, and is reachable from any network with an assigned role.
using './main.bicep'

param environmentName = 'trial'
param serviceBusSku = 'Standard'
param cosmosCapacityMode = 'Serverless'
param cosmosBackupTier = 'Continuous7Days'
param duplicateDetectionWindow = 'P1D'
// Without locks the whole resource group can be deleted.
param lockContainers = false
