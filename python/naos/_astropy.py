# SPDX-License-Identifier: Apache-2.0
"""A frame as the kind of file that astropy reads units from: data is decrypted straight into the array that astropy hands out."""
import numpy
from astropy.io.fits.file import _File


class LazyFile(_File):
    """astropy's own file object over a frame. Its readarray would read bytes and copy them into an array: three times the memory."""

    def __init__(self, frame):
        super().__init__(frame.file(), mode="readonly", memmap=False)
        self._frame = frame

    def readarray(self, size=None, offset=0, dtype=numpy.uint8, shape=None):
        dtype = numpy.dtype(dtype)
        if shape is None:
            shape = ((size or dtype.itemsize) // dtype.itemsize,)
        array = numpy.empty(shape, dtype)
        memory = array.reshape(-1).view(numpy.uint8) if array.nbytes else b""
        if array.nbytes and self._frame.readinto(memory, offset) < array.nbytes:
            raise OSError("the data of this unit is cut off")
        return array
