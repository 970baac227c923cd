"""Engines: how sweeps are done on a device. `protocol` is the seam, `select` chooses, `reference` is the law."""
