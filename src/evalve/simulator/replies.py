"""What every answer carries: its date, its id, what is left of the limits."""

from __future__ import annotations

import math

from aiohttp import web

from evalve.clock import Clock
from evalve.simulator.accounts import Account
from evalve.simulator.apis.wire import Api, Failure, encoded, http_date


def reply_headers(
    api: Api, identity: str, account: Account | None, *, clock: Clock, clock_skew_s: float
) -> dict[str, str]:
    """The headers of an answer that is sent now, by the provider's own clock."""
    epoch_s = clock.utc_now().timestamp() + clock_skew_s
    headers: dict[str, str] = {}
    if account is not None:
        headers = api.limit_headers(account.ledger.statements(clock.now_s()), epoch_s=epoch_s)
    headers["content-type"] = "application/json"
    headers["date"] = http_date(math.floor(epoch_s))
    headers[api.request_id_header] = f"req_{identity}"
    return headers


def failed(api: Api, failure: Failure, headers: dict[str, str]) -> web.Response:
    """An error as the provider words it."""
    body = dict(failure.body)
    if api.request_id_in_errors:
        body["request_id"] = headers[api.request_id_header]
    return web.Response(status=failure.status, body=encoded(body), headers={**headers, **failure.headers})
