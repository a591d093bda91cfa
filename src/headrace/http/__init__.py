"""What every HTTP shell says alike: problems, tags, events, places; nothing here knows a web framework."""
