#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Flips the lowest bit of one byte of a file: flip.py FILE OFFSET."""
import sys

with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)
    file.seek(int(sys.argv[2]))
    file.write(bytes([byte[0] ^ 1]))
print(f"{sys.argv[1]}: byte {sys.argv[2]} was {byte[0]:#04x}, is {byte[0] ^ 1:#04x}")
