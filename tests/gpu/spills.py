# SPDX-License-Identifier: Apache-2.0
"""The kernels of the GPU plug-in keep their values in registers: spills.py NVCC DRIVER.CU

Compiles for compute capability 9.0 and reads the report of ptxas.  A kernel that puts registers into memory ("spills") fails, and so
does a tensor product that ptxas could not leave asynchronous.  Without nvcc it is skipped.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ARCHITECTURE = "90a"
HOT = "gcm_kernel"
HOT_VARIANTS = 8  # rounds of AES, opening or sealing, one key or many
KNOWN = {}  # kernels that spill, and bytes


def readable(mangled):
    """_Z10gcm_kernelILi14ELi1ELi0EEv10gpu_launch -> gcm_kernel<14, 1, 0>"""
    found = re.match(r"_Z(\d+)", mangled)
    if not found:
        return mangled
    at, length = found.end(), int(found[1])
    arguments = re.match(r"I((?:L[a-z]-?\d+E)+)E", mangled[at + length:])
    numbers = re.findall(r"L[a-z](-?\d+)E", arguments[1]) if arguments else []
    return mangled[at:at + length] + (f"<{', '.join(numbers)}>" if numbers else "")


def kernels(report):
    """{name: (registers, bytes of stack, bytes spilled)}"""
    found, name, stack, spilled = {}, None, 0, 0
    for line in report.splitlines():
        if entry := re.search(r"Compiling entry function '([^']+)'", line):
            name, stack, spilled = readable(entry[1]), 0, 0
        elif sizes := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spilled = int(sizes[1]), max(int(sizes[2]), int(sizes[3]))
        elif (used := re.search(r"Used (\d+) registers", line)) and name:
            found[name] = (int(used[1]), stack, spilled)
            name = None
    return found


def main(nvcc, driver):
    if not nvcc:
        print("skipped: no nvcc")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([nvcc, "-std=c++17", "-O3", "-gencode", f"arch=compute_{ARCHITECTURE},code=sm_{ARCHITECTURE}", "-Xptxas", "-v",
                               "-cubin", "-o", str(pathlib.Path(folder) / "kernels.cubin"), driver],
                              capture_output=True, text=True, check=False)
    report = done.stdout + done.stderr
    if done.returncode:
        print(report)
        return 1
    found, failed = kernels(report), []
    for name, (registers, stack, spilled) in sorted(found.items()):
        known = KNOWN.get(name, 0)
        print(f"{name:28} {registers:4} registers {stack:5} bytes of stack {spilled:5} spilled{' (known)' if spilled and spilled <= known else ''}")
        if spilled > known:
            failed.append(f"{name} spills {spilled} bytes")
        if known and not spilled:
            print(f"{name} spills no more: take it out of KNOWN")
    if len([name for name in found if name.startswith(HOT)]) < HOT_VARIANTS:
        failed.append(f"the report of ptxas has less than {HOT_VARIANTS} variants of {HOT}")
    failed += [line for line in report.splitlines() if "serialized" in line]
    print("\n".join(failed) or "no spill that is not known")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
