// A trial with PostgreSQL, reachable from the addresses below, and from within Azure, with an assigned role. Idle, some 10
// dollars a month for Service Bus (docs/capacity.md, An idle month). The server and two replicas of the worker cost money while
// idle, too: that page has no table for them.
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
// With its digest, so that each replica runs the same image, whenever it starts:
// az acr repository show --name myregistry --image outbox-relay:1 --query digest --output tsv
param image = 'myregistry.azurecr.io/outbox-relay@sha256:0000000000000000000000000000000000000000000000000000000000000000'

// Object ids of users: az ad signed-in-user show --query id -o tsv. For groups, change the type below to Group.
param operatorPrincipalIds = []
param operatorPrincipalType = 'User'
param trial = true
param operatorEmails = []
param runbook = 'docs/runbook.md'

// What relay.toml needs, as python -m infra.parameters writes it.
param destinations = loadJsonContent('relay.json').destinations
param streams = loadJsonContent('relay.json').streams
