"""The transports that tests go through, and their names in the list of tests."""

from __future__ import annotations

import bisimetric as bm

EVERY_TRANSPORT = (
    bm.Exact(),
    bm.Exact(2.0),
    bm.Sinkhorn(0.5),
    bm.Sinkhorn(0.5, cost="value"),
    bm.Sinkhorn(0.01, cost="value"),
    bm.KLBall(0.2),
    bm.KLBall(0.2, p=2.0),
    bm.Independent(),
    bm.Independent(2.0, diagonal="zero"),
)


def name(transport: bm.Transport) -> str:
    """A short name of a transport, for the list of tests."""
    text = type(transport).__name__.lower()
    for field, default in (("reg", None), ("radius", None), ("p", 1.0), ("cost", "sharp"), ("diagonal", "kept")):
        value = getattr(transport, field, default)
        text += "" if value == default else f"-{value:g}" if isinstance(value, float) else f"-{value}"
    return text
