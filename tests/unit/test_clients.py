"""Where a process's calls go: the short way leads to where the generic client goes, in every part of AWS."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest
from aiobotocore.session import get_session

from adapters.dynamodb.client import DynamoClient
from adapters.sqs import ShortSqs
from engine.clock import SystemClock
from handlers import clients
from handlers.clients import Clients, destination
from tests.unit.adapters.certificate import certificate

if TYPE_CHECKING:
    from pathlib import Path

NOTHING: dict[str, str] = {}
OPERATIONS = {"dynamodb": "list_tables", "sqs": "list_queues"}


class Kept(Exception):  # noqa: N818 - no error: the request is what was wanted
    """A request that is kept from leaving the machine."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


async def where_it_goes(generic: Any, operation: str) -> tuple[str, str, str]:
    """The address, service and region of what the generic client sends."""

    def keep(request: Any, **_: Any) -> None:
        raise Kept(request)

    generic.meta.events.register("before-send", keep)
    with pytest.raises(Kept) as kept:
        await getattr(generic, operation)()
    request = kept.value.request
    said = request.headers["Authorization"]
    scope = (said if isinstance(said, str) else said.decode()).partition("Credential=")[2].partition(",")[0].split("/")
    return request.url, scope[3], scope[2]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets variables of a function's environment; nothing is remembered of an earlier one."""
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    clients._session.cache_clear()
    yield monkeypatch.setenv
    clients._session.cache_clear()


FIPS, DUAL = {"AWS_USE_FIPS_ENDPOINT": "true"}, {"AWS_USE_DUALSTACK_ENDPOINT": "true"}


@pytest.mark.parametrize("service", sorted(OPERATIONS))
@pytest.mark.parametrize(
    ("region", "more"),
    [
        ("eu-west-1", NOTHING),
        ("eu-west-1", DUAL),
        ("us-east-1", FIPS),
        ("us-east-1", FIPS | DUAL),
        ("us-east-1", {"AWS_ACCOUNT_ID": "123456789012"}),
        ("us-gov-west-1", NOTHING),
        ("us-gov-west-1", FIPS),
        ("us-gov-east-1", FIPS | DUAL),
        ("cn-north-1", NOTHING),
        ("cn-northwest-1", DUAL),
        ("us-iso-west-1", DUAL),
        ("us-isob-east-1", FIPS),
        ("eusc-de-east-1", NOTHING),
        ("local", NOTHING),
        ("eu-west-1", {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566/aws"}),
        ("eu-west-1", {"AWS_ENDPOINT_URL_SQS": "https://vpce-1.sqs.eu-west-1.vpce.amazonaws.com"}),
        ("eu-west-1", {"AWS_ENDPOINT_URL_DYNAMODB": "https://vpce-1.dynamodb.eu-west-1.vpce.amazonaws.com"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value) or "plain",
)
async def test_the_short_way_leads_where_the_generic_client_goes(
    environment: Any, service: str, region: str, more: dict[str, str]
) -> None:
    for name, value in {"AWS_DEFAULT_REGION": region, **more}.items():
        environment(name, value)
    async with get_session().create_client(service) as generic:
        url, signed_for, signed_in = await where_it_goes(generic, OPERATIONS[service])
    made = Clients(SystemClock(), trace=lambda: None)
    short: Any = await (made.dynamodb() if service == "dynamodb" else made.sqs())
    await made.close()
    way = short._way
    address = way._poster.address
    scheme = "http" if address.tls is None else "https"
    assert f"{scheme}://{address.netloc}{address.path}" == url
    assert (way._signer._service, way._signer._region) == (signed_for, signed_in)


async def test_where_only_the_generic_client_knows_how_it_is_asked(environment: Any) -> None:
    environment("AWS_DEFAULT_REGION", "eu-west-1")
    environment("HTTPS_PROXY", "http://127.0.0.1:9")
    made = Clients(SystemClock(), trace=lambda: None)
    assert not isinstance(await made.dynamodb(), DynamoClient)
    assert not isinstance(await made.sqs(), ShortSqs)
    await made.close()


class Elsewhere:
    """A client that signs for several regions at once."""

    async def generate_presigned_url(self, operation: str) -> str:
        return f"https://host/?X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256&op={operation}"


async def test_a_signature_that_is_not_ours_is_left_to_the_generic_client() -> None:
    assert await destination(Elsewhere(), "list_tables") is None


async def test_over_tls_it_trusts_whom_the_generic_client_trusts(environment: Any, tmp_path: Path) -> None:
    file = certificate(tmp_path, "localhost")
    environment("AWS_DEFAULT_REGION", "eu-west-1")
    environment("AWS_CA_BUNDLE", str(file))
    clients._tls.cache_clear()
    made = clients._tls()
    clients._tls.cache_clear()
    assert made.cert_store_stats()["x509"] == 1
    assert made.check_hostname
    assert made.verify_mode is ssl.CERT_REQUIRED
    assert not made.verify_flags & ssl.VERIFY_X509_STRICT
