"""Results as data frames, where pandas is there (extra `frames`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from .kinds import Array


def frame(
    columns: Mapping[str, object] | Array,
    index: list[str] | range | None = None,
    names: list[str] | range | None = None,
) -> pd.DataFrame:
    """A data frame of columns by name, or of a matrix with names of its rows (`index`) and columns (`names`)."""
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("data frames need pandas; pip install 'bisimetric[frames]'.") from None
    if isinstance(columns, Mapping):
        return pd.DataFrame(dict(columns), index=index)
    return pd.DataFrame(columns, index=index, columns=names)
