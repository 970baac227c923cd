"""One thread for torch: tests run beside each other, and their tensors are tiny."""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)
