# SPDX-License-Identifier: Apache-2.0
"""Frames: opening, reading, cutting out, sealing."""
import ctypes
import io
import os
import tempfile
import warnings

from ._library import Access, Facts, Place, Statistics, call, lib

_LARGE = 8 << 20  # bytes from which several threads read
_STATES = ("right", "missing", "wrong", "tampered")


def _key(key):
    if key is None:
        return None
    return bytes.fromhex(key) if isinstance(key, str) else bytes(key)


def _access(header_key, data_key, config, key_manager):
    header, data = _key(header_key), _key(data_key)
    return Access(header, len(header or b""), data, len(data or b""), None if config is None else os.fsencode(config), not key_manager)


class _Result(io.RawIOBase):
    """The FITS file that a frame gives, as a file of Python; reads decrypt what they need."""

    def __init__(self, frame):
        self._frame, self._at = frame, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=os.SEEK_SET):
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._frame.size}[whence]
        if base + offset < 0:
            raise ValueError("a place before the beginning")
        self._at = base + offset
        return self._at

    def tell(self):
        return self._at

    def readinto(self, buffer):
        got = self._frame.readinto(buffer, self._at)
        self._at += got
        return got


class Frame:
    """An open frame. header_key, data_key: bytes or hexadecimal digits; None: the key manager's. config: the configuration to use;
    key_manager=False: the given keys only. It opens with whatever keys there are: see level, keys and reasons."""

    def __init__(self, path, header_key=None, data_key=None, config=None, key_manager=True):
        self._handle = ctypes.c_void_p()
        call(lib.naos_frame_open, os.fsencode(path), ctypes.byref(_access(header_key, data_key, config, key_manager)),
             ctypes.byref(self._handle))

    def close(self):
        if self._handle:
            self._handle = ctypes.c_void_p(lib.naos_frame_close(self._handle))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()

    @property
    def facts(self):
        """What is known of it without a key: version, algorithm, frame_id, collection_id, bytes, segment_bytes, units, and the MEKs that wrap
        its keys (empty if they are exchanged by hand)."""
        facts = Facts()
        lib.naos_frame_facts(self._handle, ctypes.byref(facts))
        return {name: value.decode() if isinstance(value, bytes) else value
                for name, value in ((field, getattr(facts, field)) for field, _ in Facts._fields_)}

    @property
    def level(self):
        """"full", "metadata-only", "pixels-only" or "denied"."""
        return lib.naos_frame_level_name(lib.naos_frame_level(self._handle)).decode()

    @property
    def keys(self):
        """What became of the header key and the data key: "right", "missing", "wrong" or "tampered"."""
        return tuple(_STATES[lib.naos_frame_key_state(self._handle, part)] for part in (1, 2))

    @property
    def reasons(self):
        """The sentences of keys that are not right, header key first; empty strings if they are."""
        return tuple(lib.naos_frame_key_reason(self._handle, part).decode("utf-8", "replace") for part in (1, 2))

    @property
    def size(self):
        """Bytes of the FITS file that the keys give."""
        return lib.naos_frame_result_bytes(self._handle)

    @property
    def units(self):
        """For each unit (HDU): (header offset, header bytes, data offset, data bytes) in that file."""
        places = []
        for index in range(lib.naos_frame_units(self._handle)):
            place = Place()
            lib.naos_frame_unit(self._handle, index, ctypes.byref(place))
            places.append((place.header_offset, place.header_bytes, place.data_offset, place.data_bytes))
        return places

    def readinto(self, buffer, offset):
        """Fills a writable buffer from a place of that file; the number of bytes is less only at its end."""
        view = memoryview(buffer).cast("B")
        got = ctypes.c_size_t()
        if len(view) == 0:
            return 0
        memory = (ctypes.c_char * len(view)).from_buffer(view)
        if len(view) >= _LARGE:
            call(lib.naos_frame_read_parallel, self._handle, memory, len(view), offset, 0, ctypes.byref(got))
        else:
            call(lib.naos_frame_read_at, self._handle, memory, len(view), offset, ctypes.byref(got))
        return got.value

    def read(self, offset, size):
        buffer = bytearray(max(0, min(size, self.size - offset)))
        self.readinto(buffer, offset)
        return bytes(buffer)

    def file(self):
        """That file as a file object of Python."""
        return io.BufferedReader(_Result(self), 65536)

    def hdus(self):
        """That file as an astropy HDUList; units are read and decrypted when they are used. The frame must stay open."""
        from astropy.io import fits
        from ._astropy import LazyFile
        return fits.open(LazyFile(self), lazy_load_hdus=True, memmap=False)

    def write(self, target, replace=False, jobs=0):
        """Writes that file."""
        call(lib.naos_frame_write, self._handle, os.fsencode(target), replace, jobs)

    def find(self, unit):
        """The number of a unit (HDU) that is given by its number or name: 1, "SCI", ("SCI", 2)."""
        text = f"{unit[0]},{unit[1]}" if isinstance(unit, tuple) else str(unit)
        number = ctypes.c_size_t()
        call(lib.naos_frame_unit_find, self._handle, text.encode(), ctypes.byref(number))
        return number.value

    @property
    def statistics(self):
        """What was read since it was opened: {"header_segments", "data_segments", "bytes_read"}."""
        read = Statistics()
        lib.naos_frame_statistics(self._handle, ctypes.byref(read))
        return {name: getattr(read, name) for name, _ in Statistics._fields_}

    def cutout(self, section=None, unit=0, center=None, size=None):
        """A part of an image as an HDUList, for which only the segments that hold it are read: a section, "[101:356,1:256]" as FITS
        counts, or a box around center: (ra, dec) with size: one or two numbers, in degrees or as quantities and a SkyCoord of astropy.
        A box that is not all inside is clipped, with a warning. Neither: the whole unit."""
        if section is not None and center is not None or (center is None) != (size is None):
            raise ValueError("give a section, or center and size, or neither")
        number = self.find(unit)

        def write(path):
            if section is not None:
                call(lib.naos_frame_cutout, self._handle, number, section.encode(), path)
            elif center is not None:
                clipped = ctypes.c_bool()
                call(lib.naos_frame_cutout_sky, self._handle, number, *_degrees(center), *_degrees(size), path, ctypes.byref(clipped))
                if clipped:
                    warnings.warn("part of the box lies outside the image", stacklevel=3)
            else:
                call(lib.naos_frame_write_unit, self._handle, number, path)
        return _hdus_of(write)

    def device(self, unit=0, numbers="native"):
        """The data of a unit in the memory of a GPU, decrypted there: see naos.device."""
        from .device import DeviceArray
        return DeviceArray(self, self.find(unit), numbers)

    def section(self, unit=0):
        """Pixels of an image by slices, as the section of an astropy HDU: frame.section("SCI")[0:100, 200:300]. Only the segments
        that hold them are read."""
        return self.hdus()[self.find(unit)].section


def _degrees(pair):
    """Two numbers of degrees from numbers, quantities or a place of astropy."""
    if hasattr(pair, "icrs"):
        pair = (pair.icrs.ra, pair.icrs.dec)
    elif not isinstance(pair, (tuple, list)):
        pair = (pair, pair)
    return [float(value.to_value("deg")) if hasattr(value, "to_value") else float(value) for value in pair]


def _hdus_of(write):
    """What a function writes to a file, in memory."""
    from astropy.io import fits
    with tempfile.TemporaryDirectory(prefix="naos-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        path = os.path.join(directory, "part.fits")
        write(os.fsencode(path))
        with io.open(path, "rb") as part:
            return fits.open(io.BytesIO(part.read()))


def open(path, header_key=None, data_key=None, config=None, key_manager=True):  # as astropy.io.fits.open
    """An astropy HDUList of a frame. Closing it closes the frame. DeniedError or IntegrityError if no key opens it."""
    frame = Frame(path, header_key, data_key, config, key_manager)
    if frame.level == "denied":
        try:
            frame.write(os.devnull)  # says why, and writes nothing
        finally:
            frame.close()
    hdus = frame.hdus()
    close = hdus.close

    def close_both(*arguments, **named):
        close(*arguments, **named)
        frame.close()

    hdus.close, hdus.frame = close_both, frame
    return hdus


def cutout(path, section=None, unit=0, center=None, size=None, header_key=None, data_key=None, config=None, key_manager=True):
    """A part of an image of a frame, see Frame.cutout."""
    with Frame(path, header_key, data_key, config, key_manager) as frame:
        return frame.cutout(section, unit, center, size)


def info(path):
    """What is known of a frame without a key, see Frame.facts."""
    with Frame(path, key_manager=False) as frame:
        return frame.facts


def seal(source, target, collection=None, header_key=None, data_key=None, config=None, segment_bytes=0, replace=False, jobs=0):
    """Seals a FITS file: with the MEKs of a collection, or with two keys given by hand."""
    access = _access(header_key, data_key, config, collection is not None)
    call(lib.naos_frame_seal, os.fsencode(source), os.fsencode(target), ctypes.byref(access),
         None if collection is None else collection.encode(), segment_bytes, replace, jobs)
