"""What can be wrong with a cluster."""

from __future__ import annotations

from ..backends.errors import DeviceError


class ClusterError(DeviceError):
    """A cluster that is not there, cannot be used, or was lost; the message says what is left and what to do."""


class LostShareError(ClusterError):
    """All workers that held what was given to the cluster were lost; others may be there."""
