"""Filters as they are said over HTTP."""

from __future__ import annotations

from typing import get_args

from headrace.client.finding import Filters
from headrace.core.status import Status
from headrace.hub.filters import JobFilters, SaidStatus


def test_every_status_can_be_said() -> None:
    assert {*get_args(SaidStatus)} == {*Status, "in_progress"}


def test_every_filter_of_an_app_can_be_said() -> None:
    assert {*JobFilters.__struct_fields__} == {*Filters.__annotations__, "type", "customer_id"}
