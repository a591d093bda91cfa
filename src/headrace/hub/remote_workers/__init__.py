"""Workers in any language: the hub stands in for them, and is the one who speaks to the store."""
