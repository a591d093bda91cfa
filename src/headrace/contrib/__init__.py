"""What fits headrace to other libraries; each module needs its extra."""
