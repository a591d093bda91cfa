"""What connects headrace with other libraries; each module needs its extra."""
