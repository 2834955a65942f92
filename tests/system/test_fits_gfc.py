# SPDX-License-Identifier: Apache-2.0
"""naos/gfc.h from Python, with the declarations that programs for the paper's library have."""
import os
import subprocess

import conftest
import frame_files

SCRIPT = r'''
import ctypes, os, struct, sys
library, folder, legacy = sys.argv[1:4]
class FitsOperationResult(ctypes.Structure):
    _fields_ = [("data_buffer", ctypes.POINTER(ctypes.c_ubyte)), ("buffer_size", ctypes.c_size_t), ("error_code", ctypes.c_int),
                ("warning_code", ctypes.c_int), ("error_message", ctypes.c_char * 256)] + [(f"time_{i}", ctypes.c_double) for i in range(8)]
assert ctypes.sizeof(FitsOperationResult) == 344
lib = ctypes.CDLL(library)
text, pointer, result = ctypes.c_char_p, ctypes.c_void_p, FitsOperationResult
for name, back, arguments in (("gfc_context_create", pointer, [ctypes.c_size_t] * 2), ("gfc_context_destroy", None, [pointer]),
                              ("gfc_decrypt_frame", result, [pointer, text, text, text]),
                              ("gfc_encrypt_context_create", pointer, [ctypes.c_size_t] * 2), ("gfc_encrypt_context_destroy", None, [pointer]),
                              ("gfc_encrypt_file", result, [pointer, text, text, text, text]),
                              ("gfc_encrypt_file_without_context", result, [text, text, text, text]),
                              ("gfc_encrypt_frame", result, [pointer, text, text, ctypes.c_size_t, pointer, ctypes.c_size_t, ctypes.c_int,
                                                             ctypes.c_int, ctypes.POINTER(ctypes.c_long), text, text]),
                              ("free_fits_operation_result", None, [ctypes.POINTER(result)])):
    getattr(lib, name).restype, getattr(lib, name).argtypes = back, arguments
header, data, wrong = b"000102030405060708090a0b0c0d0e0f", b"f0e0d0c0b0a090807060504030201000", b"a" * 32
at = lambda name: os.path.join(folder, name).encode()
plain = open(at("plain.fits"), "rb").read()
def content(res):
    return ctypes.string_at(res.data_buffer, res.buffer_size) if res.data_buffer else None
def codes(res):
    return res.error_code, res.warning_code

enc = lib.gfc_encrypt_context_create(1 << 20, 1 << 16)
assert codes(lib.gfc_encrypt_file(enc, at("plain.fits"), at("sealed.fits"), header, data)) == (0, 0)
assert b"NAOSFRM =                    1" in open(at("sealed.fits"), "rb").read(2880)
ctx = lib.gfc_context_create(1 << 24, 1 << 24)
res = lib.gfc_decrypt_frame(ctx, at("sealed.fits"), header, data)
assert codes(res) == (0, 0) and content(res) == plain and res.time_0 > 0
lib.free_fits_operation_result(ctypes.byref(res))   # the buffer is the context's: it is left alone
assert not res.data_buffer and res.buffer_size == 0
for missing in (None, b"", b"NO_KEY"):
    res = lib.gfc_decrypt_frame(ctx, at("sealed.fits"), header, missing)
    assert codes(res) == (0, 2) and content(res) == plain[:2880] + bytes(len(plain) - 2880)
    res = lib.gfc_decrypt_frame(ctx, at("sealed.fits"), missing, data)
    assert codes(res) == (0, 1) and content(res)[2880:] == plain[2880:] and b"secret" not in content(res)
    res = lib.gfc_decrypt_frame(ctx, at("sealed.fits"), missing, missing)
    assert codes(res) == (-998, 0) and content(res) == open(at("sealed.fits"), "rb").read()
    lib.free_fits_operation_result(ctypes.byref(res))
    lib.free_fits_operation_result(ctypes.byref(res))
assert codes(lib.gfc_decrypt_frame(ctx, at("sealed.fits"), wrong, wrong)) == (-999, 3)
# arguments
assert codes(lib.gfc_decrypt_frame(None, at("sealed.fits"), header, data)) == (-302, 0)
assert codes(lib.gfc_decrypt_frame(ctx, None, header, data)) == (-1002, 0)
assert codes(lib.gfc_decrypt_frame(ctx, at("sealed.fits"), b"short", data)) == (-1003, 0)
assert codes(lib.gfc_decrypt_frame(ctx, at("sealed.fits"), header, b"x" * 32)) == (-1004, 0)
assert codes(lib.gfc_decrypt_frame(ctx, at("absent.fits"), header, data)) == (-999, 0)
assert codes(lib.gfc_decrypt_frame(ctx, at("absent.fits"), None, None)) == (-1010, 0)
assert codes(lib.gfc_decrypt_frame(ctx, at("plain.fits"), header, data)) == (-999, 0)
small = lib.gfc_context_create(2880, 2880)
res = lib.gfc_decrypt_frame(small, at("sealed.fits"), header, data)
assert codes(res) == (-999, 0) and not res.data_buffer and b"allows 2880" in res.error_message
lib.gfc_context_destroy(small)
assert codes(lib.gfc_encrypt_file(None, at("plain.fits"), at("x"), header, data)) == (-502, 0)
assert codes(lib.gfc_encrypt_file(enc, None, at("x"), header, data)) == (-402, 0)
assert codes(lib.gfc_encrypt_file(enc, at("absent.fits"), at("x"), header, data)) == (-401, 0)
res = lib.gfc_encrypt_file_without_context(at("plain.fits"), at("x"), header, header)
assert codes(res) == (-401, 0) and b"differ" in res.error_message
res = lib.gfc_encrypt_file(enc, at("two.fits"), at("x"), header, data)
assert codes(res) == (-401, 0) and b"use version 2" in res.error_message and not os.path.exists(at("x"))
# from memory: pixels as this machine has them; the file is what FITS wants
pixels = b"".join(struct.pack("=h", *struct.unpack_from(">h", plain, 2880 + 2 * i)) for i in range(40 * 30))
axes = (ctypes.c_long * 2)(40, 30)
cards = plain[:2880].rstrip()                       # not filled up
frame = lambda bitpix, size, width: lib.gfc_encrypt_frame(None, at("memory.fits"), cards, len(cards), pixels, size, bitpix, 2,
                                                          (ctypes.c_long * 2)(width, 30), header, data)
res = frame(16, len(pixels), 40)
assert codes(res) == (0, 0), res.error_message
assert content(lib.gfc_decrypt_frame(ctx, at("memory.fits"), header, data)) == plain
for other in (frame(32, len(pixels), 40), frame(16, len(pixels) - 2, 40), frame(16, len(pixels), 41)):
    assert codes(other) == (-500, 0) and b"another image" in other.error_message
# files of the paper's library are refused, with the way out
if legacy:
    res = lib.gfc_decrypt_frame(ctx, legacy.encode(), header, data)
    assert codes(res) == (-999, 0) and not res.data_buffer and b"import-legacy" in res.error_message
lib.gfc_context_destroy(ctx)
lib.gfc_context_destroy(None)
lib.gfc_encrypt_context_destroy(enc)
print("all is well")
'''


def test_programs_for_the_papers_library_run_unchanged(tmp_path):
    plain = frame_files.image()
    (tmp_path / "plain.fits").write_bytes(plain)
    extension = frame_files.header_of("XTENSION= 'IMAGE   '", "BITPIX  =                    8", "NAXIS   =                    0",
                                      "PCOUNT  =                    0", "GCOUNT  =                    1")
    (tmp_path / "two.fits").write_bytes(plain + extension)
    shared = conftest.shared_data()
    legacy = str(shared / "data/frames/legacy/enc/f32_2d.gcm.fits") if shared else ""
    env = dict(os.environ)
    if os.environ.get("NAOS_SANITIZE", "none") != "none":
        runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
        env.update(LD_PRELOAD=runtime, ASAN_OPTIONS="detect_leaks=0")
    done = subprocess.run(["/usr/bin/python3", "-c", SCRIPT, str(conftest.BUILD / "libnaos.so.0"), str(tmp_path), legacy], env=env,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "all is well" in done.stdout, done.stdout + done.stderr
