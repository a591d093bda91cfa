"""The OpenAPI document, written from the operations, and the page that shows it. Imports: ``hub.server``."""
