"""An instrumented App with a task that runs in child processes; importable by name, as those need it."""

from __future__ import annotations

from opentelemetry import trace

from headrace import App
from headrace.contrib.otel import instrument

app = App("memory://")
instrument(app)


@app.task(run_in="process")
def here() -> tuple[str, str]:
    """The span that the function is in."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)
