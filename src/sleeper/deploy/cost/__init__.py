"""What a deployment costs, from its templates."""
