"""What the role `families` promises."""
