"""The rule of where webhooks may go, as far as a URL shows; tests/hub/webhooks tries it on addresses of names."""

from __future__ import annotations

import pytest

from headrace.core.webhooks.addresses import PUBLIC, AddressRule, Forbidden


@pytest.mark.parametrize(
    "url", ["https://some.example/", "https://8.8.8.8/", "https://notlocalhost/", "https://[2606:4700::1111]/"]
)
def test_what_may_be_public_passes(url: str) -> None:
    PUBLIC.test_url(url)


@pytest.mark.parametrize(
    ("url", "flag"),
    [
        ("http://some.example/", "--webhook-http"),
        ("https://10.0.0.1/", "--webhook-allow 10.0.0.1"),
        ("https://[fe80::1%25eth0]/", "--webhook-allow fe80::1"),
        ("https://LOCALHOST/", "--webhook-allow 127.0.0.1"),
        ("https://shop.localhost:8443/", "--webhook-allow 127.0.0.1"),
    ],
)
def test_what_is_refused_names_the_flag_that_allows_it(url: str, flag: str) -> None:
    with pytest.raises(Forbidden, match=flag):
        PUBLIC.test_url(url)


def test_this_machine_is_allowed_by_either_of_its_addresses() -> None:
    for network in ("127.0.0.0/8", "::1"):
        AddressRule([network], http=True).test_url("http://localhost:8000/")
