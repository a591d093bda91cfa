"""API keys, signed tokens and dashboard sessions as values. Imports: ``core``."""
