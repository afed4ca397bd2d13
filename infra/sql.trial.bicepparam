// A trial with PostgreSQL: reachable from the addresses below, and from within Azure, with an assigned role.
using './sql.bicep'

param environmentName = 'trial'
param engine = 'PostgreSQL'
param postgresSkuName = 'Standard_B2s'
param postgresSkuTier = 'Burstable'
param serviceBusSku = 'Standard'

// Whoever installs the feed: az ad signed-in-user show --query '[id, userPrincipalName]' -o tsv
param administratorObjectId = '00000000-0000-0000-0000-000000000000'
param administratorName = 'you@example.org'
param clientIpAddresses = []

// docker build, docker push, or az acr build --registry myregistry --image outbox-relay:1 .
param registryName = 'myregistry'
param image = 'myregistry.azurecr.io/outbox-relay:1'

// What relay.toml needs, as python -m infra.parameters writes it.
param destinations = loadJsonContent('relay.json').destinations
param streams = loadJsonContent('relay.json').streams
