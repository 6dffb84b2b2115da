"""Seven kinds of work in a CRM. Each yields after every turn, so that a conversation may end anywhere."""

from __future__ import annotations

from collections.abc import Callable

from making.office import records, reporting
from making.onboarding import client_onboarding, housekeeping
from making.sales import contracting, deal_pipeline, quoting
from making.story import Story, Turns

WORKFLOWS: dict[str, Callable[[Story], Turns]] = {
    function.__name__: function
    for function in (
        client_onboarding,
        deal_pipeline,
        quoting,
        contracting,
        records,
        reporting,
        housekeeping,
    )
}
