"""Group commit and the start and stop of services, each written once."""
