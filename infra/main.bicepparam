// Parameters of `azd up`, from its environment (azd env set NAME value). The defaults are those of a trial.
using './main.bicep'

var operator = readEnvironmentVariable('AZURE_PRINCIPAL_ID', '')
var private = bool(readEnvironmentVariable('PRIVATE_NETWORKING', 'false'))
// The default must be a literal: with a conditional expression the compiler reports BCP427 if the variable is not set.
var publicAccess = readEnvironmentVariable('FUNCTION_APP_PUBLIC_ACCESS', '')
var email = readEnvironmentVariable('OPERATOR_EMAIL', '')

param environmentName = readEnvironmentVariable('AZURE_ENV_NAME', 'trial')
param location = readEnvironmentVariable('AZURE_LOCATION', 'westeurope')
param privateNetworking = private
param functionAppPublicAccess = empty(publicAccess) ? !private : toLower(publicAccess) == 'true'
param zoneRedundant = bool(readEnvironmentVariable('ZONE_REDUNDANT', 'false'))
param alwaysReadyInstances = int(readEnvironmentVariable('ALWAYS_READY_INSTANCES', '1'))
param serviceBusSku = readEnvironmentVariable('MESSAGING_SKU', 'Standard')
param duplicateDetectionWindow = readEnvironmentVariable('DUPLICATE_DETECTION_WINDOW', 'P1D')
param cosmosCapacityMode = readEnvironmentVariable('CAPACITY_MODE', 'Serverless')
param cosmosBackupTier = readEnvironmentVariable('BACKUP_TIER', 'Continuous7Days')
param rollingUpdates = bool(readEnvironmentVariable('ROLLING_UPDATES', 'false'))
param summarizeWrites = bool(readEnvironmentVariable('SUMMARIZE_WRITES', 'false'))
param lockContainers = bool(readEnvironmentVariable('LOCK_CONTAINERS', 'false'))
param operatorPrincipalIds = empty(operator) ? [] : [operator]
param operatorPrincipalType = readEnvironmentVariable('AZURE_PRINCIPAL_TYPE', 'User')
// Whoever closes the network runs it in production, and is told of alerts: OPERATOR_EMAIL and RUNBOOK.
param trial = !private
param operatorEmails = empty(email) ? [] : [email]
param runbook = readEnvironmentVariable('RUNBOOK', 'docs/runbook.md')

// What relay.toml needs, as python -m infra.parameters writes it.
param destinations = loadJsonContent('relay.json').destinations
param streams = loadJsonContent('relay.json').streams
