"""Several NVML field values in one call, at the price of one call.

pynvml's nvmlDeviceGetFieldValues builds and unpacks ctypes structures each time, several times the cost of the call
itself; at 10 Hz on 8 boards that is what a recorder mostly does. So its structure is laid out once per board here and
unpacked in one go.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import pynvml

DOUBLE, UINT, SIGNED_LONG = 0, 1, 4
"""nvmlValueType_t members that the 8 bytes of a value are not simply the number of."""
LAYOUT = "8xqqIIQ"
"""nvmlFieldValue_t: field and scope (passed over), time stamp, latency, value type, return code, value."""
LOW_HALF = 0xFFFFFFFF


class FieldReader:
    """Reads the same fields of one board again and again."""

    def __init__(self, fields: Sequence[tuple[int, int]]) -> None:
        """`fields`: (field, scope) pairs."""
        self.fields = tuple(fields)
        count = len(self.fields)
        self._count = ctypes.c_int(count)
        self._values = (pynvml.c_nvmlFieldValue_t * count)()
        for value, (field, scope) in zip(self._values, self.fields, strict=True):
            value.fieldId, value.scopeId = field, scope
        self._pointer = ctypes.byref(self._values)
        self._struct = struct.Struct("=" + LAYOUT * count)
        assert self._struct.size == ctypes.sizeof(self._values)
        self._function: Any = None

    def read(self, handle: Any) -> list[float | None]:
        """Values in order, None where that field failed. Raises NVMLError where the call as a whole fails."""
        if self._function is None:
            self._function = _function()
        code = self._function(handle, self._count, self._pointer)
        if code:
            raise pynvml.NVMLError(code)
        found = self._struct.unpack_from(self._values)
        return [None if found[i + 3] else _number(found[i + 2], found[i + 4]) for i in range(0, len(found), 5)]


def _number(kind: int, bits: int) -> float:
    if kind == UINT:
        return bits & LOW_HALF
    if kind == DOUBLE:
        return struct.unpack("=d", bits.to_bytes(8, "little"))[0]
    if kind == SIGNED_LONG and bits >> 63:
        return bits - (1 << 64)
    return bits


def _function() -> Any:
    """The library's own function, from the library that pynvml opened. Raises NVMLError where it has none."""
    if pynvml.nvmlLib is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
    try:
        return pynvml.nvmlLib.nvmlDeviceGetFieldValues
    except AttributeError:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None
