metadata description = 'The names of topics and queues in Azure Resource Manager, where each / is a ~: billing/in is billing~in.'

@export()
@description('The name of the resource of a topic or queue.')
func resourceName(entity string) string => replace(entity, '/', '~')

@export()
@description('The values that the dimension EntityName of metrics may have: the documentation does not say which of both names it is.')
func metricNames(entities array) array => union(entities, map(entities, entity => replace(entity, '/', '~')))
