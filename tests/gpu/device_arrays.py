#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frames in the memory of a GPU, from Python: values against NumPy, CuPy and PyTorch without a copy, damage, and what stays behind.

Usage: device_arrays.py    NAOS_LIBRARY and NAOS_CUDA_PLUGIN say what to load; with the emulation CuPy and PyTorch are left out
"""
import gc
import os
import sys
import tempfile
import time

import numpy as np

import naos
import naos.device

HEADER, DATA = bytes(range(16)), bytes(range(100, 116))
CODES = {8: ">u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}


def card(text):
    return text.ljust(80).encode()


def block(data, fill):
    return data + fill * (-len(data) % 2880)


def image(bitpix, shape, extra=(), first=True, seed=1):
    """A unit of FITS and its stored numbers."""
    random = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if bitpix > 0:
        low, high = (0, 255) if bitpix == 8 else (-2 ** (bitpix - 1), 2 ** (bitpix - 1) - 1)
        numbers = random.integers(low, high, count, dtype=np.int64)
    else:
        numbers = random.normal(size=count)
    stored = numbers.astype(CODES[bitpix]).reshape(shape)
    cards = [card("SIMPLE  =                    T" if first else "XTENSION= 'IMAGE   '"), card(f"BITPIX  = {bitpix:20d}"),
             card(f"NAXIS   = {len(shape):20d}")]
    cards += [card(f"NAXIS{i + 1:<3d}= {axis:20d}") for i, axis in enumerate(reversed(shape))]
    cards += [] if first else [card("PCOUNT  =                    0"), card("GCOUNT  =                    1")]
    cards += [card(text) for text in extra] + [card("END")]
    return block(b"".join(cards), b" ") + block(stored.tobytes(), b"\0"), stored


def to_numpy(array):
    return np.frombuffer(array.tobytes(), array.typestr).reshape(array.shape)


def same(a, b):
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def check_values(directory, hardware):
    units, stored = [], []
    kinds = [(16, ["BZERO   =              32768.0"]), (-32, []), (8, []),
             (32, ["BSCALE  =               2.5D0", "BLANK   =                   17"]), (64, []), (-64, [])]
    for i, (bitpix, extra) in enumerate(kinds):
        raw, numbers = image(bitpix, (3, 37, 211) if i == 1 else (301, 257), extra, i == 0, i)
        if bitpix == 32:
            numbers = numbers.copy()
            numbers[5, 5] = 17
            at = raw.index(b"END" + b" " * 77) // 2880 * 2880 + 2880
            raw = raw[:at] + block(numbers.tobytes(), b"\0")
        units.append(raw)
        stored.append(numbers)
    source, frame_path = os.path.join(directory, "a.fits"), os.path.join(directory, "a.frame.fits")
    with open(source, "wb") as file:
        file.write(b"".join(units))
    naos.seal(source, frame_path, header_key=HEADER, data_key=DATA, segment_bytes=65536)
    with naos.Frame(frame_path, HEADER, DATA, key_manager=False) as frame:
        for unit, numbers in enumerate(stored):
            native = frame.device(unit)
            assert native.shape == numbers.shape and same(to_numpy(native), numbers.astype(numbers.dtype.newbyteorder("<"))), unit
            raw = frame.device(unit, "stored")
            assert raw.tobytes()[:numbers.nbytes] == numbers.tobytes(), unit
            scale, zero = (2.5, 0) if unit == 3 else (1, 32768 if unit == 0 else 0)
            want = zero + scale * numbers.astype(np.float64)
            if unit == 3:
                want[numbers == 17] = np.nan
            doubles, singles = frame.device(unit, "float64"), frame.device(unit, "float32")
            assert same(to_numpy(doubles), want) and same(to_numpy(singles), want.astype(np.float32)), unit
            if hardware:
                check_others(native, numbers.astype(numbers.dtype.newbyteorder("=")))
        for wrong in (lambda: frame.device(99), lambda: frame.device(0, "int7")):
            try:
                wrong()
                raise SystemExit("a wrong unit was read")
            except (naos.UsageError, KeyError):
                pass
    with naos.Frame(frame_path, header_key=HEADER, key_manager=False) as frame:
        try:
            frame.device(0)
            raise SystemExit("data was read without its key")
        except naos.DeniedError:
            pass
        except naos.Error as error:
            assert error.name == "NAOS_E_NOKEY", error.name
    return frame_path


def check_others(array, want):
    """No copy: they see the same address; and they keep the memory alive."""
    import cupy
    import torch
    address = array.__cuda_array_interface__["data"][0]
    seen = cupy.asarray(array)
    assert seen.data.ptr == address and same(cupy.asnumpy(seen), want)
    tensor = torch.as_tensor(array, device="cuda")
    assert tensor.data_ptr() == address and same(tensor.cpu().numpy(), want)
    tensor = torch.from_dlpack(array)
    assert tensor.data_ptr() == address and same(tensor.cpu().numpy(), want)
    before = len(naos.device._lent)
    del tensor
    gc.collect()
    assert len(naos.device._lent) == before - 1
    seen = cupy.from_dlpack(array)
    assert seen.data.ptr == address and float(seen.sum()) == float(cupy.asarray(want).sum())


def check_damage(frame_path):
    size = os.path.getsize(frame_path)
    for at in (size // 2, size - 40000):
        with open(frame_path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 4]))
        failed = 0
        with naos.Frame(frame_path, HEADER, DATA, key_manager=False) as frame:
            for unit in range(6):
                try:
                    frame.device(unit)
                except naos.IntegrityError as error:
                    assert "was changed" in str(error), str(error)
                    failed += 1
        assert failed == 1, failed
        with open(frame_path, "r+b") as file:
            file.seek(at)
            file.write(byte)


def time_large(directory):
    """The paper's image, from the page cache."""
    shape = (10650, 14200)
    raw, stored = image(-32, shape)
    source, frame_path = os.path.join(directory, "large.fits"), os.path.join(directory, "large.frame.fits")
    with open(source, "wb") as file:
        file.write(raw)
    naos.seal(source, frame_path, header_key=HEADER, data_key=DATA)
    for numbers in ("stored", "native"):
        times = []
        for _ in range(8):
            started = time.perf_counter()
            with naos.Frame(frame_path, HEADER, DATA, key_manager=False) as frame:
                array = frame.device(0, numbers)
            times.append(time.perf_counter() - started)
            del array
        best, middle = min(times), sorted(times)[len(times) // 2]
        print(f"577 MB frame, file to device, {numbers}: median {middle * 1e3:.2f} ms = {stored.nbytes / middle / 1e9:.1f} GB/s, "
              f"best {stored.nbytes / best / 1e9:.1f}, first {times[0] * 1e3:.1f} ms")


def main():
    try:
        line = naos.device.describe()
    except naos.UsageError as error:
        print(f"skipped: no CUDA device ({error})")
        return 77
    print(line)
    hardware = "emulation" not in line
    with tempfile.TemporaryDirectory() as directory:
        check_damage(check_values(directory, hardware))
        if hardware:
            time_large(directory)
    print("all as it must be")
    return 0


sys.exit(main())
