"""HTTP routes that become jobs: one core, and a module for each web framework."""
