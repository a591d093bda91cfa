"""What commands print: tables, texts, timelines, JSON. Begin with ``console``."""
