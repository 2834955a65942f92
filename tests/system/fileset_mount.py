# SPDX-License-Identifier: Apache-2.0
"""A mounted file set for a test: a SoftHSM token, a configuration, naos-fs in the foreground with its log in a file.

    with Mount(tmp_path) as mount:
        (mount.path / "a").write_bytes(b"...")
        mount.below / "a"                    # the sealed file
        mount.kill(); mount.start()          # a crash and a new start
    second = mount.second()                  # another mount of the same directory (mode = shared)
"""
import os
import pathlib
import signal
import subprocess
import time

import conftest
import softhsm

NAOS_FS = os.environ.get("NAOS_FS_EXE") or str(conftest.BUILD / "cmd/naos-fs/naos-fs")


def missing():
    """Why nothing can be mounted here, or None."""
    if softhsm.MISSING:
        return softhsm.MISSING
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse can't be opened here"
    return None


class Mount:
    def __init__(self, directory, options="", mode="local", below=None, token=None, name="genomes"):
        self.directory = pathlib.Path(directory)
        self.token = token or softhsm.SoftToken(self.directory / "softhsm")
        self.name, self.mode, self.options = name, mode, options
        self.below = pathlib.Path(below) if below else self.directory / "below"
        self.path = self.directory / "mount"
        self.config = self.directory / "naos.conf"
        self.log = self.directory / "naos-fs.log"
        for path in (self.below, self.path):
            path.mkdir(parents=True, exist_ok=True)
        self.config.write_text(self.token.config() + f"[fileset {name}]\npath = {self.below}\nmountpoint = {self.path}\nmode = {mode}\n")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("NAOS_") and k != "JOURNAL_STREAM"}
        self.env.update(self.token.env, ASAN_OPTIONS="detect_leaks=0")  # a process that can't be traced can't be searched for leaks
        self.process = None
        if not token:
            self.naos("key", "create", name)

    def naos(self, *words, status=0):
        done = subprocess.run([conftest.NAOS, *map(str, words), "--config", str(self.config)], env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=300)
        assert done.returncode == status, f"naos {' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self):
        log = open(self.log, "ab")
        command = [NAOS_FS, "--foreground", "--config", str(self.config)] + (["-o", self.options] if self.options else [])
        self.process = subprocess.Popen(command + [self.name], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        for _ in range(600):
            if os.path.ismount(self.path):
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError("naos-fs did not mount: " + self.log.read_text(errors="replace"))

    def kill(self):
        """SIGKILL, and the mount that is left behind goes."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=60)
        subprocess.run(["fusermount3", "-u", "-z", str(self.path)], check=True, timeout=60)

    def stop(self):
        """Unmounts; everything is sealed afterwards."""
        if not self.process:
            return
        if self.process.poll() is None:
            for _ in range(100):
                if subprocess.run(["fusermount3", "-u", str(self.path)], capture_output=True, timeout=60).returncode == 0:
                    break
                time.sleep(0.1)
            else:
                self.process.terminate()
            self.process.wait(timeout=120)
        else:
            subprocess.run(["fusermount3", "-u", "-z", str(self.path)], capture_output=True, timeout=60)
        status, self.process = self.process.returncode, None
        assert status == 0, f"naos-fs ended with {status}: {self.log.read_text(errors='replace')}"

    def second(self, **kwargs):
        """Another mount of the same sealed files."""
        return Mount(self.directory / "second", mode=self.mode, below=self.below, token=self.token, name=self.name, **kwargs)

    def __enter__(self):
        return self.start()

    def __exit__(self, *exception):
        try:
            self.stop()
        finally:
            if os.path.ismount(self.path):
                subprocess.run(["fusermount3", "-u", "-z", str(self.path)], capture_output=True, timeout=60)
