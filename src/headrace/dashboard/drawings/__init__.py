"""SVG drawings and trees of the pages: charts, graph, timeline, JSON."""
