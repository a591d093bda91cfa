"""What the role `records` promises."""
