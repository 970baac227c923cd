"""Parts of a matrix of distances that are read from elsewhere."""

from .jit import kernel

_TILE = 32


@kernel
def gather(source, rows, columns, out):
    """out[i, j] = source[rows[i], columns[j]]."""
    for i in range(len(rows)):
        line = source[rows[i]]
        for j in range(len(columns)):
            out[i, j] = line[columns[j]]


@kernel
def gather_turned(source, rows, columns, out):
    """out[j, i] = source[rows[i], columns[j]], a square of entries at a time."""
    for i0 in range(0, len(rows), _TILE):
        i1 = min(i0 + _TILE, len(rows))
        for j0 in range(0, len(columns), _TILE):
            j1 = min(j0 + _TILE, len(columns))
            for j in range(j0, j1):
                column = columns[j]
                for i in range(i0, i1):
                    out[j, i] = source[rows[i], column]
