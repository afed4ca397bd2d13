metadata description = 'Access to the outboxes by data plane roles of Cosmos DB. Azure roles give no access to data.'

param accountName string
param databases array

@description('Paths within the account, such as dbs/outbox/colls/data.')
param dataContainers array
param leaseContainers array
param quarantineContainers array

@description('Resource id and principal id of the function app\'s identity. Names of role assignments derive from the resource id, which what-if knows.')
param relayIdentityId string
param relayPrincipalId string

@description('Principal ids of the services that write the outbox.')
param writerPrincipalIds array

@description('Whether writers may delete and patch items too.')
param writersMayDelete bool

@description('Principal ids of operators, who run python -m relay.')
param operatorPrincipalIds array

resource account 'Microsoft.DocumentDB/databaseAccounts@2025-04-15' existing = {
  name: accountName
}

// Built into every account: https://learn.microsoft.com/azure/cosmos-db/nosql/reference-data-plane-security
var dataReader = '${account.id}/sqlRoleDefinitions/00000000-0000-0000-0000-000000000001'
var dataContributor = '${account.id}/sqlRoleDefinitions/00000000-0000-0000-0000-000000000002'

// Metadata covers names, partition keys and physical partitions, never items. It must be readable at the database, not only
// at the containers: a change feed processor (SDK 3.31.2) reads the database too, and gets 403, substatus 5301, with a role
// at the container only. The account's scope is not needed.
// https://github.com/Azure/azure-cosmos-dotnet-v3/issues/3638 and pull 3566
resource metadataReader 'Microsoft.DocumentDB/databaseAccounts/sqlRoleDefinitions@2024-11-15' = {
  parent: account
  name: guid(account.id, 'outbox-relay-metadata-reader')
  properties: {
    roleName: 'Outbox Relay Metadata Reader'
    type: 'CustomRole'
    assignableScopes: [
      account.id
    ]
    permissions: [
      {
        dataActions: [
          'Microsoft.DocumentDB/databaseAccounts/readMetadata'
        ]
      }
    ]
  }
}

// The relay creates records, queries parked keys and events to set aside, and updates and deletes those entries. The role does not
// include the change feed or stored procedures. The action that a patch needs is not documented, hence items/*.
// https://learn.microsoft.com/azure/cosmos-db/reference-data-plane-security
resource quarantineWriter 'Microsoft.DocumentDB/databaseAccounts/sqlRoleDefinitions@2024-11-15' = {
  parent: account
  name: guid(account.id, 'outbox-relay-quarantine-writer')
  properties: {
    roleName: 'Outbox Relay Quarantine Writer'
    type: 'CustomRole'
    assignableScopes: [
      account.id
    ]
    permissions: [
      {
        dataActions: [
          'Microsoft.DocumentDB/databaseAccounts/readMetadata'
          'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/executeQuery'
          'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/items/*'
        ]
      }
    ]
  }
  dependsOn: [
    metadataReader
  ]
}

// A deleted event is lost if it has not been published yet, and nothing shows it: the change feed has no deletions. Whether a
// transactional batch needs more than the actions of its operations is not documented; writersMayDelete is the way out.
resource eventWriter 'Microsoft.DocumentDB/databaseAccounts/sqlRoleDefinitions@2024-11-15' = {
  parent: account
  name: guid(account.id, 'outbox-relay-event-writer')
  properties: {
    roleName: 'Outbox Relay Event Writer'
    type: 'CustomRole'
    assignableScopes: [
      account.id
    ]
    permissions: [
      {
        dataActions: [
          'Microsoft.DocumentDB/databaseAccounts/readMetadata'
          'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/executeQuery'
          'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/items/create'
          'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/items/read'
          'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/items/replace'
          'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/items/upsert'
        ]
      }
    ]
  }
  dependsOn: [
    quarantineWriter
  ]
}

var databaseScopes = map(databases, database => '${account.id}/dbs/${database}')
var metadataRights = map(databaseScopes, scope => { roleDefinitionId: metadataReader.id, scope: scope })
var readRights = map(dataContainers, path => { roleDefinitionId: dataReader, scope: '${account.id}/${path}' })
var leaseRights = map(leaseContainers, path => { roleDefinitionId: dataContributor, scope: '${account.id}/${path}' })
var quarantineRights = map(quarantineContainers, path => { roleDefinitionId: quarantineWriter.id, scope: '${account.id}/${path}' })
var writeRights = map(dataContainers, path => { roleDefinitionId: writersMayDelete ? dataContributor : eventWriter.id, scope: '${account.id}/${path}' })
// The smoke test writes an event, and quarantine discard deletes a record.
var operatorRights = map(databaseScopes, scope => { roleDefinitionId: dataContributor, scope: scope })

var relay = { who: relayIdentityId, principalId: relayPrincipalId }
var relayRights = map(concat(metadataRights, readRights, leaseRights, quarantineRights), right => union(relay, right))
var writersMetadata = flatten(map(writerPrincipalIds, id => map(metadataRights, right => union({ who: id, principalId: id }, right))))
var writersData = flatten(map(writerPrincipalIds, id => map(writeRights, right => union({ who: id, principalId: id }, right))))
var operatorsOutbox = flatten(map(operatorPrincipalIds, id => map(operatorRights, right => union({ who: id, principalId: id }, right))))

// Deployed serially: Cosmos DB locks the account for each assignment and rejects a concurrent one with 412.
// https://github.com/hashicorp/terraform-provider-azurerm/issues/15842
@batchSize(1)
resource rights 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2024-11-15' = [for right in concat(relayRights, writersMetadata, writersData, operatorsOutbox): {
  parent: account
  name: guid(right.scope, right.who, right.roleDefinitionId)
  properties: {
    principalId: right.principalId
    roleDefinitionId: right.roleDefinitionId
    scope: right.scope
  }
}]
