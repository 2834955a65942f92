# SPDX-License-Identifier: Apache-2.0
"""Data of frames in the memory of a GPU."""
import ctypes
import os

from ._library import call, lib

_NUMBERS = {"stored": 0, "native": 1, "float32": 2, "float64": 3}
# by BITPIX: NumPy's type; DLPack's code and bits
_TYPES = {8: ("|u1", 1, 8), 16: ("<i2", 0, 16), 32: ("<i4", 0, 32), 64: ("<i8", 0, 64), -32: ("<f4", 2, 32), -64: ("<f8", 2, 64)}
_CUDA = 2  # DLPack's number of such devices


class _Shape(ctypes.Structure):
    """struct naos_device_shape"""
    _fields_ = [("address", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("device", ctypes.c_int), ("bitpix", ctypes.c_int),
                ("axes", ctypes.c_uint), ("axis", ctypes.c_uint64 * 9)]


class _Tensor(ctypes.Structure):
    """DLManagedTensor of DLPack, without its versions"""


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Tensor))
_Tensor._fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int), ("ndim", ctypes.c_int),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                    ("byte_offset", ctypes.c_uint64), ("manager_ctx", ctypes.c_void_p), ("deleter", _DELETER)]

_void, _u64, _int = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int
for _name, _result, _arguments in (
        ("naos_frame_read_device", _int, [_void, ctypes.c_size_t, _int, ctypes.POINTER(_void), _void]),
        ("naos_device_array_describe", None, [_void, ctypes.POINTER(_Shape)]),
        ("naos_device_array_read", _int, [_void, _u64, _void, _u64, _void]),
        ("naos_device_array_free", _void, [_void]),
        ("naos_device_describe", _int, [_void, ctypes.c_size_t, _void])):
    getattr(lib, _name).restype, getattr(lib, _name).argtypes = _result, _arguments

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_capsule_is = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is.restype, _capsule_is.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]

_lent = {}  # tensors that others hold, by their address: each keeps its array


def _give_back(tensor):
    _lent.pop(ctypes.addressof(tensor.contents), None)


_give_back_c = _DELETER(_give_back)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _unused_capsule(capsule):
    """A capsule that nobody took: its tensor comes back."""
    if _capsule_is(capsule, b"dltensor"):
        _lent.pop(_capsule_pointer(capsule, b"dltensor"), None)


class DeviceArray:
    """An array in the memory of a GPU, for CuPy (cupy.asarray), PyTorch (torch.as_tensor, torch.from_dlpack), Numba and JAX without a
    copy. Its memory is wiped when the last of them lets go of it."""

    def __init__(self, frame, unit, numbers):
        self._handle = ctypes.c_void_p()
        self._shape = _Shape()
        call(lib.naos_frame_read_device, frame._handle, unit, _NUMBERS[numbers], ctypes.byref(self._handle))
        lib.naos_device_array_describe(self._handle, ctypes.byref(self._shape))

    def __del__(self):
        if getattr(self, "_handle", None):
            lib.naos_device_array_free(self._handle)

    @property
    def shape(self):
        """As NumPy has it: the axis that varies fastest last."""
        return tuple(reversed(self._shape.axis[:self._shape.axes]))

    @property
    def typestr(self):
        return _TYPES[self._shape.bitpix][0]

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.typestr, "data": (self._shape.address or 0, False), "strides": None, "version": 3,
                "stream": None}

    def __dlpack_device__(self):
        return _CUDA, self._shape.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("only as it is, where it is")
        _, code, bits = _TYPES[self._shape.bitpix]
        shape = (ctypes.c_int64 * self._shape.axes)(*self.shape)
        tensor = _Tensor(self._shape.address, _CUDA, self._shape.device, self._shape.axes, code, bits, 1,
                         ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), None, 0, None, _give_back_c)
        _lent[ctypes.addressof(tensor)] = (tensor, shape, self)
        return _new_capsule(ctypes.addressof(tensor), b"dltensor", ctypes.cast(_unused_capsule, ctypes.c_void_p))

    def tobytes(self):
        """A copy in the memory of the host."""
        buffer = (ctypes.c_char * self._shape.bytes)()
        call(lib.naos_device_array_read, self._handle, 0, buffer, self._shape.bytes)
        return buffer.raw


def describe():
    """One line about the GPU that is used; an exception says why there is none."""
    text = ctypes.create_string_buffer(512)
    call(lib.naos_device_describe, text, len(text))
    return text.value.decode()


def read(path, unit=0, numbers="native", **keys):
    """The data of a unit, on a GPU: numbers "native" (as they are stored, in the machine's order of bytes), "float32" or "float64"
    (scaled by BZERO and BSCALE, BLANK as NaN), or "stored" (bytes of any unit). Keys as for naos.Frame."""
    from .frame import Frame
    with Frame(os.fspath(path), **keys) as frame:
        return DeviceArray(frame, unit, numbers)
