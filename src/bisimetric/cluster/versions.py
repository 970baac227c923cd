"""What distances are, as the store has them."""

from __future__ import annotations

from typing import NamedTuple


class Version(NamedTuple):
    """Distances as the store has them.

    Attributes: number (of the version; −1 for zeros), shifts (what is to be added to them, one after the other, where
    they are positive), largest (of them, with the shifts).
    """

    number: int = -1
    shifts: tuple[float, ...] = ()
    largest: float = 0.0
