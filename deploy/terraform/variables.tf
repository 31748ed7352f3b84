variable "templates" {
  description = "The folder that `sleeper deploy templates ID --out FOLDER` has written."
  type        = string
}

variable "tags" {
  description = "Tags of all stacks, beside those of Sleeper's own."
  type        = map(string)
  default     = {}
}

variable "role_arn" {
  description = "A role that CloudFormation takes to make resources; null for that of Terraform."
  type        = string
  default     = null
}
