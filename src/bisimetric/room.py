"""How much memory is there."""

from __future__ import annotations

import os


def available_memory() -> int:
    """Bytes of memory that a process can still have, by the system's own count and its limits."""
    found = []
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        pass
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            with open(limit, encoding="ascii") as most, open(used, encoding="ascii") as now:
                found.append(int(most.read()) - int(now.read()))
        except (OSError, ValueError):
            continue
    try:
        import resource

        most_here, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most_here != resource.RLIM_INFINITY:
            found.append(most_here)
    except (ImportError, OSError, ValueError):
        pass
    if not found and hasattr(os, "sysconf"):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return max(min(found), 0) if found else 1 << 62
