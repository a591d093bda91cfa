"""What of a request is kept."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headrace.endpoints.request import (
    EndpointRequest,
    checked_headers,
    is_credential,
    kept_headers,
    kept_query,
    route_of,
    values_of,
)
from headrace.errors import ConfigError

GIVEN = values_of([("accept", "a"), ("x-tag", "1"), ("authorization", "s"), ("x-tag", "2"), ("x-api-key", "s")])


def test_headers_are_kept_by_name() -> None:
    assert kept_headers(GIVEN, checked_headers(["X-Tag", "no"])) == {"x-tag": ("1", "2")}
    assert kept_headers(GIVEN, checked_headers(["*"])) == {"accept": ("a",), "x-tag": ("1", "2")}
    both = kept_headers(GIVEN, checked_headers(["*", "Authorization"]))
    assert both == {"accept": ("a",), "x-tag": ("1", "2"), "authorization": ("s",)}
    assert kept_headers(GIVEN, checked_headers([])) == {}


OPENING = [
    *("Authorization", "Proxy-Authorization", "cookie", "Set-Cookie", "X-CSRF-Token", "apikey", "api_key", "apiKey"),
    *("key", "auth", "sig", "code", "jwt", "pwd", "otp", "credential", "X-Amz-Credential", "accessKey", "access-key"),
    *("x-auth", "x-functions-key", "ocp-apim-subscription-key", "auth_code", "device-code", "PHPSESSID", "user_pass"),
    *("id_jwt", "SAMLAssertion", "client_auth", "totp", "SIG", "authcode", "accesscode", "otpcode", "smscode"),
    *("userpwd", "newpwd", "AuthCode", "tokens", "auth_tokens", "max_token_secret", "user_key", "sort_key_secret"),
    *("signing_partition_key", "tokens_of_max_key"),
]
BY_GATES = [
    *("x-goog-iap-jwt-assertion", "x-goog-authenticated-user-email", "x-goog-authenticated-user-id"),
    *("x-amzn-oidc-data", "x-amzn-oidc-identity", "x-amzn-oidc-accesstoken", "x-amz-security-token"),
    *("cf-access-jwt-assertion", "cf-access-authenticated-user-email", "cf-access-client-id"),
    *("x-ms-client-principal", "x-ms-client-principal-name", "x-ms-token-aad-id-token", "x-ms-token-google-expires-on"),
    *("x-appengine-user-email", "X-AppEngine-User-Id", "x-apigateway-api-userinfo", "x-endpoint-api-userinfo"),
    *("x-amzn-mtls-clientcert", "x-amzn-mtls-clientcert-leaf", "X-Amzn-Mtls-Clientcert-Subject"),
]
HARMLESS = [
    *("accept-language", "user-agent", "x-request-id", "x-correlation-id", "idempotency-key", "author", "monkey"),
    *(
        "x-tenant",
        "encode",
        "design",
        "country_code",
        "statusCode",
        "zip-code",
        "keyboard",
        "cf-ray",
        "x-amzn-trace-id",
    ),
    *("x-ms-client-request-id", "signal", "compass", "barcode", "x-appengine-country", "max_tokens", "maxTokens"),
    *("max_new_tokens", "sort_key", "sortKey", "partition_key", "primary-key", "total_tokens", "num_tokens"),
]


@pytest.mark.parametrize("name", OPENING + BY_GATES)
def test_what_opens_something_is_known(name: str) -> None:
    assert is_credential(name)
    assert kept_query([(name, "s"), ("page", "2")]) == (("page", "2"),)
    assert kept_headers({name.lower(): ("s",), "accept": ("a",)}, checked_headers(["*"])) == {"accept": ("a",)}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_opens_nothing_is_kept(name: str) -> None:
    assert not is_credential(name)


@pytest.mark.parametrize("wrong", ["x-tag", [1], [None]])
def test_an_allow_list_is_a_list_of_names(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="headers must be a list of names"):
        checked_headers(wrong)


def test_parameters_that_open_something_are_not_kept() -> None:
    given = [("a", "1"), ("api_key", "s"), ("b", "3"), ("access_token", "s"), ("clientAuth", "s"), ("a", "2")]
    assert kept_query(given) == (("a", "1"), ("b", "3"), ("a", "2")), "in their order"


def test_values_keep_their_order() -> None:
    assert list(values_of([("b", "2"), ("a", "1"), ("b", "1")]).items()) == [("b", ("2", "1")), ("a", ("1",))]


def test_all_values_of_a_header_are_found() -> None:
    assert EndpointRequest(headers=GIVEN).all("x-tag") == ("1", "2")
    assert EndpointRequest(headers=GIVEN).all("x-other") == ()


def test_what_a_framework_made_of_a_path_is_text_again() -> None:
    assert route_of({"a": "x", "b": 1, "c": UUID(int=1)}) == {"a": "x", "b": 1, "c": str(UUID(int=1))}
