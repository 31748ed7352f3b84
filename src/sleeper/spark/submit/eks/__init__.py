"""Requests for EKS: a state machine of Step Functions runs each job in Kubernetes."""
