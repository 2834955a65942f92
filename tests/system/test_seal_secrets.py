# SPDX-License-Identifier: Apache-2.0
"""After an operation no file key and no PIN is left in the memory of naos, and it leaves no core file."""
import ctypes
import os
import resource
import signal
import subprocess
import time

import pytest

from conftest import NAOS
from seal_help import content

FEK = os.environ.get("NAOS_SEAL_FEK")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the memory of naos is closed to others")
TRACEME, CONT, SETOPTIONS, O_TRACECLONE, O_TRACEEXIT, O_EXITKILL, EVENT_EXIT = 0, 7, 0x4200, 0x8, 0x40, 0x100000, 6
HUGE = 1 << 30  # the shadow memory of a sanitizer holds no data of the program
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def memory(pid):
    """All readable memory of a process."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in maps:
            where, permissions = line.split()[:2]
            begin, end = (int(part, 16) for part in where.split("-"))
            if "r" not in permissions or line.rstrip().endswith(("[vvar]", "[vsyscall]")) or end - begin > HUGE:
                continue
            while begin < end:
                try:
                    mem.seek(begin)
                    piece = mem.read(min(end - begin, 1 << 24))
                except OSError:  # a guard page of a sanitizer or of the slab
                    break
                found.append(piece)
                begin += len(piece) or end - begin
    return b"".join(found)


def memory_at_exit(words, env):
    """Runs a program to its end and takes its memory just before the kernel does."""
    env = dict(env, ASAN_OPTIONS="detect_leaks=0")  # which can't be traced
    process = subprocess.Popen([*map(str, words)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               preexec_fn=lambda: libc.ptrace(TRACEME, 0, None, None))
    pid, status = os.waitpid(process.pid, 0)
    assert os.WIFSTOPPED(status)
    assert libc.ptrace(SETOPTIONS, pid, None, O_TRACECLONE | O_TRACEEXIT | O_EXITKILL) == 0
    libc.ptrace(CONT, pid, None, None)
    found = None
    while True:
        stopped, status = os.waitpid(-1, 0x40000000)  # __WALL: threads too
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if stopped == pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return found, process.returncode
            continue
        event, sign = status >> 16, os.WSTOPSIG(status)
        if event == EVENT_EXIT and stopped == pid:
            found = memory(pid)
        libc.ptrace(CONT, stopped, None, None if event or sign in (signal.SIGSTOP, signal.SIGTRAP) else sign)


@pytest.fixture
def sealed(sets, tmp_path):
    (tmp_path / "plain").write_bytes(content(3 << 20))
    sets.ok("seal", "-f", "genomes", tmp_path / "plain", tmp_path / "sealed")
    return tmp_path / "sealed"


def key_of(sets, path):
    return bytes.fromhex(subprocess.run([FEK, path], env=sets.env, stdout=subprocess.PIPE, text=True, check=True).stdout)


def test_while_a_file_is_open_its_key_is_found(sets, sealed):
    """The control of the tests below: the scan sees the slab."""
    process = subprocess.Popen([NAOS, "open", sealed, "-"], env=sets.env, stdout=subprocess.PIPE)
    try:
        assert process.stdout.read(1)  # it now waits for the pipe to be emptied
        time.sleep(0.2)
        assert key_of(sets, sealed) in memory(process.pid)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("command", ["seal", "open", "verify", "rewrap"])
def test_at_its_end_no_key_and_no_pin_is_left(sets, token, sealed, tmp_path, command):
    words = {"seal": ("seal", "-f", "genomes", tmp_path / "plain", tmp_path / "again"), "open": ("open", sealed, tmp_path / "back"),
             "verify": ("verify", sealed), "rewrap": ("rewrap", "--repair", sealed)}[command]
    if command == "rewrap":
        sets.ok("key", "rotate", "genomes")
    found, status = memory_at_exit([NAOS, *words], sets.env)
    assert status == 0
    key = key_of(sets, tmp_path / "again" if command == "seal" else sealed)
    assert str(token.pin_file).encode() in found or b"pin-source" in found  # the scan sees the heap
    assert key not in found, "a file key"
    assert token.pin.encode() not in found, "the PIN"


def test_no_core_file_is_written_even_if_one_is_asked_for(sets, sealed):
    def aborted(words, ready):
        process = subprocess.Popen([*map(str, words)], env=sets.env, stdout=subprocess.PIPE, cwd=sealed.parent)
        if ready:
            process.stdout.read(1)
        time.sleep(0.2)
        resource.prlimit(process.pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        process.send_signal(signal.SIGABRT)
        _, status = os.waitpid(process.pid, 0)
        process.returncode = -signal.SIGABRT
        process.stdout.close()
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGABRT
        return os.WCOREDUMP(status)
    if not aborted(["sleep", "60"], False):
        pytest.skip("no process leaves a core file on this machine")
    assert not aborted([NAOS, "open", sealed, "-"], True)
