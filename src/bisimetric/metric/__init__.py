"""Bisimulation metrics: F (`operator`), its fixed point to a stated error (`solve`), and what one gets (`solution`)."""
