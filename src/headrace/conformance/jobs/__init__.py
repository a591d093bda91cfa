"""What the role `jobs` promises."""
