"""What the client of the HTTP interface sends, for whoever checks its signature."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from infra.api_client import SERVICE, ApiClient, segment

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = Credentials("AKIDEXAMPLE", "secret")
REGION = "eu-west-1"


class Asked(BaseHTTPRequestHandler):
    """Answers everything, and keeps what was asked."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers.items())))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing: a test is silent."""


@pytest.fixture
def gateway() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Asked) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(5)


def expected_signature(url: str, headers: dict[str, str]) -> str:
    """The signature of a request as one who checks it works it out: from what it reads, written anew."""
    parts = urlsplit(url)
    read = parse_qsl(parts.query, keep_blank_values=True)
    written = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(read))
    request = AWSRequest("GET", f"{parts.scheme}://{parts.netloc}{parts.path}?{written}", headers={})
    request.headers["Host"] = headers["Host"]
    request.context["timestamp"] = headers["X-Amz-Date"]
    request.headers["X-Amz-Date"] = headers["X-Amz-Date"]
    signer = SigV4Auth(KEYS, SERVICE, REGION)
    return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))


def test_whoever_checks_a_query_works_out_the_same_signature(gateway: HTTPServer) -> None:
    url = f"http://127.0.0.1:{gateway.server_port}"
    query = {"type": "order", "tag": ["shop=one two", "a+b=c&d~*()", "ä=%"], "cursor": "", "after": "x/y=="}
    path = f"/workflows/{segment('a b/ä:+')}"
    assert ApiClient(url=url, region=REGION, credentials=KEYS).request("GET", path, query=query).is_success
    [(asked, headers)] = gateway.asked  # type: ignore[attr-defined]
    assert "+" not in asked
    wanted = [(name, one) for name, value in query.items() for one in ([value] if isinstance(value, str) else value)]
    assert parse_qsl(urlsplit(asked).query, keep_blank_values=True) == wanted
    assert headers["Authorization"].endswith(f"Signature={expected_signature(url + asked, headers)}")
