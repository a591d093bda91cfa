"""The EmProps page about the lifecycle of a job: its messages, field by field, with values of our own."""

from __future__ import annotations

import json

__all__ = [
    "CAPABILITIES",
    "CLAIM",
    "COMPLETE",
    "FAIL",
    "ID",
    "PROGRESS",
    "RESULT",
    "RETRY",
    "SUBMIT",
    "SUBSCRIBE",
    "URL",
    "WEBHOOK",
]

ID = "job-0012"
"""What stands in the messages for the id of the job."""
URL = "https://studio.example.org/told"
"""What stands there for the address of the client."""

SUBMIT = """
{
  "type": "render_frame",
  "priority": 75,
  "payload": {
    "scene": "harbour at dawn",
    "frame": 12,
    "samples": 64,
    "denoise": 0.25
  },
  "requirements": {
    "service_type": "blender",
    "component": "cycles",
    "hardware": {
      "gpu_memory_gb": 8
    },
    "quality_level": "draft",
    "timeout_minutes": 15
  },
  "customer_id": "studio-7",
  "max_retries": 3
}
"""

CLAIM = """
{
  "type": "claim_job",
  "worker_id": "render-03",
  "capabilities": {
    "services": ["blender", "povray"],
    "components": ["cycles", "eevee"],
    "hardware": {
      "gpu_memory_gb": 16,
      "gpu_model": "A4000"
    },
    "customer_access": {
      "isolation": "loose"
    }
  },
  "max_concurrent_jobs": 2,
  "current_load": 0.3
}
"""

CAPABILITIES = json.dumps(json.loads(CLAIM)["capabilities"])
"""What its worker says it has."""

PROGRESS = """
{
  "type": "update_job_progress",
  "job_id": "job-0012",
  "worker_id": "render-03",
  "status": "in_progress",
  "progress": 40,
  "message": "tile 10 of 25",
  "current_step": "path tracing",
  "estimated_completion": "2026-01-31T08:04:30Z",
  "connector_details": {
    "service": "blender",
    "connected": true,
    "queue_position": 0
  }
}
"""

COMPLETE = """
{
  "type": "complete_job",
  "job_id": "job-0012",
  "worker_id": "render-03",
  "status": "completed",
  "processing_time": 41.5,
  "result": {
    "success": true,
    "output_files": [
      "https://files.example.org/job-0012/frame-12.exr"
    ],
    "metadata": {
      "samples": 64,
      "seed": 7
    },
    "connector_info": {
      "connector_type": "blender",
      "service_version": "4.2",
      "processing_stats": {
        "gpu_memory_peak": 6.5,
        "total_time": 41.5
      }
    }
  }
}
"""

RESULT = json.dumps(json.loads(COMPLETE)["result"])

FAIL = """
{
  "type": "fail_job",
  "job_id": "job-0012",
  "worker_id": "render-03",
  "error": "no answer from the renderer",
  "retry": true,
  "error_details": {
    "error_type": "ServiceTimeoutError",
    "connector": "blender",
    "service_url": "http://127.0.0.1:9000",
    "timeout_seconds": 30,
    "attempts": 3
  },
  "processing_time": 33.0
}
"""

RETRY = """
{
  "max_retries": 3,
  "retry_delays": [5, 15, 30],
  "retry_conditions": [
    "ServiceTimeoutError",
    "TemporaryServiceUnavailable",
    "NetworkError"
  ],
  "no_retry_conditions": [
    "InvalidJobParameters",
    "InsufficientResources",
    "AuthenticationError"
  ]
}
"""
"""How a job is to be retried, with the numbers and the names of the page."""

SUBSCRIBE = """
{
  "type": "subscribe_job",
  "job_id": "job-0012"
}
"""

WEBHOOK = """
{
  "webhook_url": "https://studio.example.org/told",
  "events": ["status_change", "progress", "completion"],
  "authentication": {
    "type": "bearer_token",
    "token": "what-the-studio-expects"
  }
}
"""
