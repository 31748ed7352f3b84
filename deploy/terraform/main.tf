# Deploys the templates that `sleeper deploy templates` has written. Stacks share names alone, so all
# that Terraform has to know is their order: those of a wave need only those of waves before.

terraform {
  required_version = ">= 1.3"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

locals {
  listed = jsondecode(file("${var.templates}/stacks.json")).stacks
  stacks = { for each in local.listed : each.kind => each }
}

# Buckets, tables in DynamoDB, and queues. Data stays when they are destroyed, unless
# sleeper.retain.infra.after.destroy is false.
resource "aws_cloudformation_stack" "data" {
  for_each = { for kind, stack in local.stacks : kind => stack if stack.wave == 0 }

  name          = each.value.name
  template_body = file("${var.templates}/${each.value.template}")
  capabilities  = ["CAPABILITY_NAMED_IAM"]
  tags          = merge(var.tags, each.value.tags)
  iam_role_arn  = var.role_arn
}

# The properties, which make the instance.
resource "aws_cloudformation_stack" "properties" {
  for_each = { for kind, stack in local.stacks : kind => stack if stack.wave == 1 }

  name          = each.value.name
  template_body = file("${var.templates}/${each.value.template}")
  capabilities  = ["CAPABILITY_NAMED_IAM"]
  tags          = merge(var.tags, each.value.tags)
  iam_role_arn  = var.role_arn

  depends_on = [aws_cloudformation_stack.data]
}

# Policies, functions, and the cluster of workers.
resource "aws_cloudformation_stack" "functions" {
  for_each = { for kind, stack in local.stacks : kind => stack if stack.wave == 2 }

  name          = each.value.name
  template_body = file("${var.templates}/${each.value.template}")
  capabilities  = ["CAPABILITY_NAMED_IAM"]
  tags          = merge(var.tags, each.value.tags)
  iam_role_arn  = var.role_arn

  depends_on = [aws_cloudformation_stack.properties]
}

# Workers on Fargate.
resource "aws_cloudformation_stack" "workers" {
  for_each = { for kind, stack in local.stacks : kind => stack if stack.wave == 3 }

  name          = each.value.name
  template_body = file("${var.templates}/${each.value.template}")
  capabilities  = ["CAPABILITY_NAMED_IAM"]
  tags          = merge(var.tags, each.value.tags)
  iam_role_arn  = var.role_arn

  depends_on = [aws_cloudformation_stack.functions]
}
