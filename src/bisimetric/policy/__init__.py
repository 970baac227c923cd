"""Approximate policy iteration: the loop (`loop`), alone (`solve`), side by side (`batch`), in folders (`folder`)."""
