metadata description = 'An existing server of the outbox in SQL. Nothing of it is changed.'

param name string

@description('Whether it is a PostgreSQL flexible server; otherwise a logical server of Azure SQL.')
param onPostgres bool

resource postgres 'Microsoft.DBforPostgreSQL/flexibleServers@2025-08-01' existing = if (onPostgres) {
  name: name
}

resource azureSql 'Microsoft.Sql/servers@2025-01-01' existing = if (!onPostgres) {
  name: name
}

output id string = onPostgres ? postgres.id : azureSql.id
output host string = onPostgres ? postgres!.properties.fullyQualifiedDomainName : azureSql!.properties.fullyQualifiedDomainName
