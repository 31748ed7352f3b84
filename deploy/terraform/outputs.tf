locals {
  instance_url = one(distinct([for stack in local.listed : stack.tags["sleeper.instance.url"]]))
}

output "url" {
  description = "What sleeper.connect opens, when all is deployed."
  value       = local.instance_url

  depends_on = [aws_cloudformation_stack.workers]
}

output "policies" {
  description = "Names of the policies for roles of users and programs."
  value = {
    for policy in ["query", "ingest-by-queue", "ingest-direct", "admin"] :
    policy => "${trimsuffix(local.stacks["PoliciesStack"].name, "PoliciesStack")}${policy}"
  }

  depends_on = [aws_cloudformation_stack.functions]
}
