"""The EmProps page about the lifecycle of a job: its JSON, to the letter."""

from __future__ import annotations

import json

__all__ = [
    "CAPABILITIES",
    "CLAIM",
    "COMPLETE",
    "FAIL",
    "PROGRESS",
    "RESULT",
    "RETRY",
    "SUBMIT",
    "SUBSCRIBE",
    "WEBHOOK",
]

SUBMIT = """
{
  "type": "text_to_image",
  "priority": 75,
  "payload": {
    "prompt": "a beautiful landscape with mountains",
    "steps": 30,
    "cfg_scale": 7.5,
    "width": 1024,
    "height": 1024
  },
  "requirements": {
    "service_type": "comfyui",
    "component": "text-to-image-xl",
    "hardware": {
      "gpu_memory_gb": 8
    },
    "quality_level": "quality",
    "timeout_minutes": 15
  },
  "customer_id": "customer-123",
  "max_retries": 3
}
"""

CLAIM = """
{
  "type": "claim_job",
  "worker_id": "worker-gpu-01",
  "capabilities": {
    "services": ["comfyui", "a1111"],
    "components": ["text-to-image-xl", "upscaling"],
    "hardware": {
      "gpu_memory_gb": 16,
      "gpu_model": "RTX 4090"
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
  "job_id": "job-abc123",
  "worker_id": "worker-gpu-01",
  "status": "in_progress",
  "progress": 45,
  "message": "Generating image - step 14/30",
  "current_step": "sampling",
  "estimated_completion": "2024-01-15T10:08:30Z",
  "connector_details": {
    "service": "comfyui",
    "connected": true,
    "queue_position": 0
  }
}
"""

COMPLETE = """
{
  "type": "complete_job",
  "job_id": "job-abc123",
  "worker_id": "worker-gpu-01",
  "status": "completed",
  "processing_time": 67.5,
  "result": {
    "success": true,
    "output_files": [
      "https://storage.example.com/results/job-abc123/image.png"
    ],
    "metadata": {
      "actual_steps": 30,
      "cfg_scale": 7.5,
      "seed": 1234567890,
      "model": "sdxl_base_1.0.safetensors"
    },
    "connector_info": {
      "connector_type": "comfyui",
      "service_version": "0.0.45",
      "processing_stats": {
        "gpu_memory_peak": 12.5,
        "total_time": 67.5,
        "sampling_time": 45.2
      }
    }
  }
}
"""

RESULT = json.dumps(json.loads(COMPLETE)["result"])

FAIL = """
{
  "type": "fail_job",
  "job_id": "job-abc123",
  "worker_id": "worker-gpu-01",
  "error": "Service connection timeout",
  "retry": true,
  "error_details": {
    "error_type": "ServiceTimeoutError",
    "connector": "comfyui",
    "service_url": "http://localhost:8188",
    "timeout_seconds": 30,
    "attempts": 3
  },
  "processing_time": 120.0
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
"""How a job is to be retried; the page has a comment in it, and nothing else that is not here."""

SUBSCRIBE = """
{
  "type": "subscribe_job",
  "job_id": "job-abc123"
}
"""

WEBHOOK = """
{
  "webhook_url": "https://client.example.com/job-notifications",
  "events": ["status_change", "progress", "completion"],
  "authentication": {
    "type": "bearer_token",
    "token": "client-webhook-token"
  }
}
"""
