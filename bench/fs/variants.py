# SPDX-License-Identifier: Apache-2.0
"""File systems that are measured side by side, each mounted by a process of its own in the foreground, so that its CPU time is known."""
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/system"))
import softhsm  # noqa: E402  (a private token, as in the tests)

URING = pathlib.Path("/sys/module/fuse/parameters/enable_uring")
# naos+OPTION is naos-fs with that mount option
NAMES = ["native", "passthrough", "naos", "naos-uring", "gocryptfs", "gocryptfs-ao", "cryfs"]


class Variant:
    """One mounted file system: sealed or plain files in `below`, what users see in `mount`."""

    def __init__(self, name, directory, build, libfuse):
        self.name, self.dir = name, pathlib.Path(directory) / name.replace("=", "-")
        self.below, self.mount, self.log = self.dir / "below", self.dir / ("below" if name == "native" else "mount"), self.dir / "log"
        self.build, self.libfuse = build, libfuse
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("NAOS_") and k != "JOURNAL_STREAM"}
        self.process, self.uring_before = None, None

    def why_not(self):
        """The reason why it can't be measured here, or None."""
        if self.name == "passthrough":
            return None if self.libfuse and (self.libfuse / "example/passthrough_hp").exists() else \
                "passthrough: needs --libfuse DIR, a build of libfuse with its examples"
        if self.name == "naos-uring":
            return None if os.access(URING, os.W_OK) else "naos-uring: this kernel has no FUSE over io_uring, or this is not root"
        program = {"gocryptfs-ao": "gocryptfs", "naos": "fusermount3", "native": "cp"}.get(self.name.partition("+")[0], self.name)
        return None if shutil.which(program) else f"{self.name}: {program} is not installed"

    # --- commands that mount, staying in the foreground ---

    def naos(self):
        if not (self.dir / "naos.conf").exists():
            token = softhsm.SoftToken(self.dir / "hsm")
            (self.dir / "naos.conf").write_text(f"{token.config()}[fileset bench]\npath = {self.below}\nmountpoint = {self.mount}\n")
            self.env.update(token.env)
            self.run(self.build / "cmd/naos/naos", "key", "create", "bench", "--config", self.dir / "naos.conf")
        options = self.name.partition("+")[2] or {"naos": "transport=dev", "naos-uring": "transport=uring"}.get(self.name)
        return [self.build / "cmd/naos-fs/naos-fs", "--foreground", "--config", self.dir / "naos.conf",
                *(["-o", options] if options else []), "bench"]

    def gocryptfs(self):
        (self.dir / "password").write_text("bench\n")
        words = ["gocryptfs", "-q", "-passfile", self.dir / "password"]
        if not (self.below / "gocryptfs.conf").exists():
            self.run(*words, "-init", "-scryptn", "10", self.below)
        return [*words, "-fg", *(["-allow_other", "-acl"] if self.name == "gocryptfs-ao" else []), self.below, self.mount]

    def cryfs(self):
        self.env.update(CRYFS_FRONTEND="noninteractive", CRYFS_NO_UPDATE_CHECK="true", CRYFS_LOCAL_STATE_DIR=str(self.dir / "state"))
        return ["cryfs", "-f", "--cipher", "aes-256-gcm", self.below, self.mount]

    def passthrough(self):
        return [self.libfuse / "example/passthrough_hp", "--foreground", "--nopassthrough", "--clone-fd", self.below, self.mount]

    def run(self, *words):
        done = subprocess.run([str(word) for word in words], env=self.env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {words[0]}: {done.stdout}{done.stderr}")

    # --- life ---

    def start(self):
        for path in (self.below, self.mount):
            path.mkdir(parents=True, exist_ok=True)
        if self.name == "native":
            return
        if self.name == "naos-uring":
            self.uring_before = URING.read_text()
            URING.write_text("Y")
        words = getattr(self, self.name.split("+")[0].split("-")[0])()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([str(word) for word in words], env=self.env, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.process.stdin.write(b"bench\n")
        self.process.stdin.close()
        for _ in range(300):
            if os.path.ismount(self.mount):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} did not mount: {self.log.read_text(errors='replace')[-500:]}")

    def cpu_s(self):
        """CPU time that the process of the file system has used."""
        if not self.process:
            return 0.0
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def idle_cpu_s(self):
        """The same once it does nothing any more: what it put off (naos-fs seals closed files later) is counted."""
        last, calm = self.cpu_s(), time.monotonic()
        begin = calm
        while self.process and time.monotonic() - calm < 6 and time.monotonic() - begin < 40:
            time.sleep(0.5)
            now = self.cpu_s()
            if now - last > 0.015:
                calm = time.monotonic()
            last = now
        return last

    def stop(self):
        for _ in range(100):
            if not os.path.ismount(self.mount):
                break
            if subprocess.run(["fusermount3", "-u", str(self.mount)], capture_output=True).returncode != 0:
                time.sleep(0.1)
        else:
            subprocess.run(["umount", "-l", str(self.mount)], capture_output=True)
        if self.process:
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        if self.uring_before:
            URING.write_text(self.uring_before)
            self.uring_before = None
