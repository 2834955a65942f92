# SPDX-License-Identifier: Apache-2.0
"""libnaos by ctypes: its functions, its structures, and its errors as exceptions."""
import ctypes
import os

c_size, c_u64 = ctypes.c_size_t, ctypes.c_uint64


class ErrorObject(ctypes.Structure):
    """struct naos_error"""
    _fields_ = [("code", ctypes.c_int), ("errno_value", ctypes.c_int), ("message", ctypes.c_char * 768)]


class ErrorInfo(ctypes.Structure):
    """struct naos_error_info"""
    _fields_ = [("code", ctypes.c_int), ("name", ctypes.c_char_p), ("category", ctypes.c_char_p), ("exit_status", ctypes.c_int),
                ("retryable", ctypes.c_bool), ("sentence", ctypes.c_char_p), ("remedy", ctypes.c_char_p)]


class Access(ctypes.Structure):
    """struct naos_frame_access"""
    _fields_ = [("header_key", ctypes.c_char_p), ("header_key_bytes", c_size), ("data_key", ctypes.c_char_p), ("data_key_bytes", c_size),
                ("config_path", ctypes.c_char_p), ("no_key_manager", ctypes.c_bool)]


class Place(ctypes.Structure):
    """struct naos_frame_place"""
    _fields_ = [("header_offset", c_u64), ("header_bytes", c_u64), ("data_offset", c_u64), ("data_bytes", c_u64)]


class Statistics(ctypes.Structure):
    """struct naos_frame_statistics"""
    _fields_ = [("header_segments", c_u64), ("data_segments", c_u64), ("bytes_read", c_u64)]


class Facts(ctypes.Structure):
    """struct naos_frame_facts"""
    _fields_ = [("version", ctypes.c_uint32), ("segment_bytes", ctypes.c_uint32), ("units", c_u64), ("bytes", c_u64),
                ("algorithm", ctypes.c_char * 16), ("frame_id", ctypes.c_char * 37), ("collection_id", ctypes.c_char * 37),
                ("header_mek", ctypes.c_char * 37), ("data_mek", ctypes.c_char * 37)]


class Error(Exception):
    """What failed, on which object, and what to do. name: of the code ("NAOS_E_INTEGRITY"); retryable: it may succeed later."""

    def __new__(cls, code, message, info):
        return super().__new__(cls)  # nothing is for OSError, which some are too

    def __str__(self):
        return self.args[0]

    def __init__(self, code, message, info):
        self.args = (message or info.sentence.decode(),)
        self.code, self.name, self.remedy, self.retryable = code, info.name.decode(), info.remedy.decode(), bool(info.retryable)


class UsageError(Error):
    """The call or the configuration is wrong."""


class SystemFailure(Error):
    """The operating system refused, or an object is missing, exists or is in use."""


class DeniedError(Error):
    """Denied by policy, or there is no key for what was asked."""


class IntegrityError(Error):
    """Changed or damaged, not a Naos object, or not the right key."""


class KeyManagerError(Error):
    """The key manager can't be reached or refuses."""


_CATEGORIES = {b"usage": UsageError, b"system": SystemFailure, b"denied": DeniedError, b"integrity": IntegrityError, b"key": KeyManagerError}
# Codes whose class has a name or a further base of its own; USAGE, SYSTEM, DENIED and KEYMANAGER are those of their category.
_NAMES = {"NOMEM": "OutOfMemory", "MEMLOCK": "MemoryLock", "NOSPACE": "NoSpace", "NOTFOUND": "NotFound", "READONLY": "ReadOnly",
          "SELFTEST": "SelfTest", "NOKEY": "NoKey", "INTEGRITY": "Tampered", "PIN": "Pin"}
_BASES = {"NOTFOUND": FileNotFoundError, "EXISTS": FileExistsError, "PERMISSION": PermissionError, "NOMEM": MemoryError}


def _class_of(info):
    """The class of one code: naos.TamperedError, naos.WrongKeyError, naos.NotFoundError (which is a FileNotFoundError too), ..."""
    category, code = _CATEGORIES[info.category], info.name.decode().removeprefix("NAOS_E_")
    if code in ("USAGE", "SYSTEM", "DENIED", "KEYMANAGER"):
        return category
    name = _NAMES.get(code) or "".join(word.capitalize() for word in code.split("_"))
    bases = (category, _BASES[code]) if code in _BASES else (category,)
    return type(name + "Error", bases, {"__module__": "naos", "__doc__": info.sentence.decode()})


def _load():
    names = [os.environ.get("NAOS_LIBRARY"), "libnaos.so.0"]
    for name in filter(None, names):
        try:
            return ctypes.CDLL(name)
        except OSError as problem:
            reason = problem
    raise ImportError(f"libnaos can't be loaded ({reason}): install Naos, or name the library in NAOS_LIBRARY")


lib = _load()
_void, _text, _frame, _error = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ErrorObject)
for _name, _result, _arguments in (
        ("naos_error_info", ctypes.POINTER(ErrorInfo), [ctypes.c_int]),
        ("naos_frame_open", ctypes.c_int, [_text, ctypes.POINTER(Access), ctypes.POINTER(_frame), _error]),
        ("naos_frame_close", _void, [_frame]),
        ("naos_frame_seal", ctypes.c_int, [_text, _text, ctypes.POINTER(Access), _text, ctypes.c_uint32, ctypes.c_bool, ctypes.c_uint, _error]),
        ("naos_frame_level", ctypes.c_int, [_frame]),
        ("naos_frame_level_name", _text, [ctypes.c_int]),
        ("naos_frame_key_state", ctypes.c_int, [_frame, ctypes.c_int]),
        ("naos_frame_key_reason", _text, [_frame, ctypes.c_int]),
        ("naos_frame_result_bytes", c_u64, [_frame]),
        ("naos_frame_read_at", ctypes.c_int, [_frame, _void, c_size, c_u64, ctypes.POINTER(c_size), _error]),
        ("naos_frame_read_parallel", ctypes.c_int, [_frame, _void, c_size, c_u64, ctypes.c_uint, ctypes.POINTER(c_size), _error]),
        ("naos_frame_facts", None, [_frame, ctypes.POINTER(Facts)]),
        ("naos_frame_units", c_size, [_frame]),
        ("naos_frame_unit", None, [_frame, c_size, ctypes.POINTER(Place)]),
        ("naos_frame_write", ctypes.c_int, [_frame, _text, ctypes.c_bool, ctypes.c_uint, _error]),
        ("naos_frame_unit_find", ctypes.c_int, [_frame, _text, ctypes.POINTER(c_size), _error]),
        ("naos_frame_statistics", None, [_frame, ctypes.POINTER(Statistics)]),
        ("naos_frame_write_unit", ctypes.c_int, [_frame, c_size, _text, _error]),
        ("naos_frame_cutout_sky", ctypes.c_int, [_frame, c_size, *[ctypes.c_double] * 4, _text, ctypes.POINTER(ctypes.c_bool), _error]),
        ("naos_frame_cutout", ctypes.c_int, [_frame, c_size, _text, _text, _error])):
    getattr(lib, _name).restype, getattr(lib, _name).argtypes = _result, _arguments

CLASSES = {code: _class_of(lib.naos_error_info(code).contents) for code in range(-99, 0) if lib.naos_error_info(code).contents.code == code}


def call(function, *arguments):
    """Calls a function whose last argument is the error object; its failure becomes an exception."""
    error = ErrorObject()
    code = function(*arguments, ctypes.byref(error))
    if code != 0:
        info = lib.naos_error_info(code).contents
        raise CLASSES.get(info.code, SystemFailure)(code, error.message.decode("utf-8", "replace"), info)
