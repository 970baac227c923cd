"""What can be wrong with a device."""

from __future__ import annotations


class DeviceError(RuntimeError):
    """A device that cannot be used or has too little memory; the message says what to do."""


def device_failed(error: BaseException) -> bool:
    """Whether an error is the device's, after which a process may not be able to use it any more."""
    return isinstance(error, DeviceError) or type(error).__module__.split(".")[0] in ("cupy", "cupy_backends")
