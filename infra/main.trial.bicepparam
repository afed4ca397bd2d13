// A trial: what costs next to nothing while nothing happens, reachable from anywhere by those who have a role.
using './main.bicep'

param environmentName = 'trial'
param serviceBusSku = 'Standard'
param cosmosCapacityMode = 'Serverless'
param cosmosBackupTier = 'Continuous7Days'
param duplicateDetectionWindow = 'P1D'
// So that the resource group can be deleted as a whole.
param lockContainers = false
