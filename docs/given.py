"""What fragments of the guides take for given, with its types; ``docs/examples.py`` lets them import it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from django.db import connection, transaction
from fastapi import FastAPI, Request
from flask import Flask
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from headrace import App, Context, Continuous, Cron, Draft, GiveUp, Job, JobOptions, Retry, RetryLater, Snooze
from headrace.endpoints.fastapi import Answers, InWorker, JobRouter, status_router
from headrace.endpoints.flask import JobBlueprint
from headrace.errors import Unavailable

__all__ = [
    "UTC",
    "Annotated",
    "Answers",
    "Any",
    "AsyncIterator",
    "Context",
    "Continuous",
    "Cron",
    "Draft",
    "FastAPI",
    "Flask",
    "GiveUp",
    "InWorker",
    "Iterator",
    "JSONResponse",
    "Job",
    "JobOptions",
    "JobRouter",
    "Mount",
    "Request",
    "Response",
    "Retry",
    "RetryLater",
    "Snooze",
    "Starlette",
    "Unavailable",
    "asynccontextmanager",
    "connection",
    "dataclass",
    "datetime",
    "msgspec",
    "status_router",
    "timedelta",
    "transaction",
]

app = jobs = App("memory://")
api = FastAPI()
router = JobRouter(jobs)
flask_app = Flask(__name__)
flask_reports = JobBlueprint(jobs, "reports", __name__)
transactions_Session = async_sessionmaker(create_async_engine("sqlite+aiosqlite://"))  # noqa: N816  # as the page has it
result: dict[str, str] = {}
body, headers = b"", dict[str, str]()
request: Request
ctx: Context


class ReportRequest(msgspec.Struct):
    title: str


class Report(msgspec.Struct):
    text: str


class Session: ...


class Mailer: ...


class Payment:
    def __init__(self, order: object) -> None: ...


class Order:
    objects: Any
    pk: int


req = ReportRequest("tea")


def get_session() -> Iterator[Session]:
    yield Session()


def get_mailer() -> Mailer:
    return Mailer()


@app.task
async def charge(order: int) -> int:
    return order


@app.task
async def poll_source(source: int) -> None: ...


@app.task
async def report(customer: int) -> None: ...


@app.task
async def resize(image: str) -> str:
    return image


@app.task
def send_receipt(order: int) -> None: ...


def current_user(request: Request) -> str | None:
    return request.headers.get("x-user")


async def has_credit(customer: str | None) -> bool:
    return customer is not None


async def read(table: str, *, offset: int) -> AsyncIterator[dict[str, str]]:
    yield {"table": table, "offset": str(offset)}
