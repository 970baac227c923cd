"""How much is kept of each pair, and where it lies."""

from .jit import kernel, part


@kernel
def carry_over(old, new, same, layout, cold):
    """Copy what was kept of the pairs whose two supports did not change; the others are `cold`."""
    first, corner, per_pair, shared = layout
    for a in range(corner if corner > 0 else len(new.sizes)):
        source, target = old.base[a], new.base[a]
        for b in range(max(a + first, corner), len(new.sizes)):
            old_size = kept_entries(old.sizes[a], old.sizes[b], per_pair, shared)
            new_size = kept_entries(new.sizes[a], new.sizes[b], per_pair, shared)
            if same[a] and same[b]:
                for k in range(new_size):
                    new.entries[target + k] = old.entries[source + k]
            else:
                for k in range(new_size):
                    new.entries[target + k] = cold
            source += old_size
            target += new_size


@part
def kept_entries(n, m, per_pair, shared):
    """Entries kept for a pair of supports n and m; closed forms keep none, but trees of two states a side one."""
    if n == 1 or m == 1:
        return 0
    if n + m == 4:
        return 1 if shared > 0 else 0
    return shared * (n - 1) + per_pair + (shared if shared > 0 else 1) * m


@kernel
def kept_layout(sizes, layout, base):
    """base[a] = where the entries of row a begin; base[-1] = how many there are."""
    first, corner, per_pair, shared = layout
    total = 0
    for a in range(corner if corner > 0 else len(sizes)):
        base[a] = total
        for b in range(max(a + first, corner), len(sizes)):
            total += kept_entries(sizes[a], sizes[b], per_pair, shared)
    base[-1] = total
