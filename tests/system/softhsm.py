# SPDX-License-Identifier: Apache-2.0
"""A private SoftHSM token for a test: directory, configuration, random PIN in a 0600 file, address.

    token = SoftToken(tmp_path)            # or the fixture `token`
    naos.env.update(token.env)             # SOFTHSM2_CONF
    naos("key", "list", "--keys", token.uri)
    naos.config.write_text(token.config())  # [keymanager] with uri and store
"""
import os
import pathlib
import secrets
import shutil
import subprocess

MODULES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so", "/usr/lib64/pkcs11/libsofthsm2.so")
MISSING = next((None for path in MODULES if os.path.exists(path) and shutil.which("softhsm2-util")), "SoftHSM 2 is not installed")


class SoftToken:
    """label must be unused in `directory`; several tokens may share one."""

    def __init__(self, directory, label="naos-test"):
        self.directory = pathlib.Path(directory)
        self.label = label
        self.tokens = self.directory / "tokens"
        self.conf = self.directory / "softhsm2.conf"
        self.pin_file = self.directory / f"{label}.pin"
        self.store = self.directory / f"{label}.db"
        self.pin = secrets.token_hex(16)
        self.tokens.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.conf.write_text(f"directories.tokendir = {self.tokens}\nobjectstore.backend = file\nlog.level = ERROR\n"
                             "slots.removable = false\nlibrary.reset_on_fork = false\n")
        self.env = {"SOFTHSM2_CONF": str(self.conf)}
        with open(os.open(self.pin_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as pin:
            pin.write(self.pin + "\n")
        self.util("--init-token", "--free", "--label", label, "--so-pin", secrets.token_hex(8), "--pin", self.pin)
        self.module = next(path for path in MODULES if os.path.exists(path))

    @property
    def uri(self):
        return self.uri_with(f"file:{self.pin_file}")

    def uri_with(self, pin_source):
        return f"pkcs11:token={self.label}?module-path={self.module}&pin-source={pin_source}"

    def config(self):
        return f"[keymanager]\nuri = {self.uri}\nstore = {self.store}\n"

    def util(self, *words):
        done = subprocess.run(["softhsm2-util", *words], env=dict(os.environ, **self.env), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    def tool(self, *words):
        """pkcs11-tool of OpenSC, logged in to this token."""
        done = subprocess.run(["pkcs11-tool", "--module", self.module, "--token-label", self.label, "--login", "--pin", self.pin, *words],
                              env=dict(os.environ, **self.env), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def object_directory(self):
        """Where this token's objects are; only for a directory with one token."""
        (path,) = self.tokens.iterdir()
        return path

    def objects(self):
        return sorted(path for path in self.object_directory().glob("*.object") if path.name != "token.object")
