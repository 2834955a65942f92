# SPDX-License-Identifier: Apache-2.0
"""Real FITS files as the distribution carries them: each is sealed and opened again, byte for byte, or refused with a reason; what
the containers and the partial results are worth is said by the field's own readers."""
import collections
import os
import pathlib
import shutil
import subprocess

HEADER, DATA = "000102030405060708090a0b0c0d0e0f", "f0e0d0c0b0a090807060504030201000"
# By their first bytes or, where they are compressed as a whole or broken from the start, by their names.
NAMES = (".fits", ".fit", ".fts", ".fits.gz", ".fit.gz", ".fits.bz2", ".fits.fz", ".fz", ".tfits", ".bdf")


def key_options(directory):
    words = {}
    for name, digits in (("header", HEADER), ("data", DATA)):
        path = pathlib.Path(directory) / f"{name}.key"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(digits + "\n")
        words[name] = [f"--{name}-key", f"file:{path}"]
    return words


def fits_files(folder):
    found = []
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        with open(path, "rb") as file:
            start = file.read(9)
        if start == b"SIMPLE  =" or path.name.lower().endswith(NAMES):
            found.append(path)
    return found


def _reader(words):
    def ok(path):
        return subprocess.run([word.replace("FILE", str(path)) for word in words], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=120).returncode == 0
    return ok


def _fitsverify(path):
    done = subprocess.run(["fitsverify", "-e", "-q", str(path)], capture_output=True, timeout=120)
    return b"verification OK" in done.stdout


def _astropy(path):
    """Every header is parsed and every unit's data is read."""
    import warnings
    from astropy.io import fits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with fits.open(path, memmap=False, disable_image_compression=True) as hdus:
                for hdu in hdus:
                    len(hdu.header), hdu.data
        except Exception:  # noqa: BLE001  (whatever it does not like)
            return False
    return True


def readers():
    """Name: function that says whether it reads a file; those that are installed."""
    found = {}
    if shutil.which("fitsverify"):
        found["fitsverify"] = _fitsverify
    try:
        import astropy.io.fits  # noqa: F401
        found["astropy"] = _astropy
    except ImportError:
        pass
    if shutil.which("fitscopy"):
        found["cfitsio"] = _reader(["fitscopy", "FILE", "-"])
    if shutil.which("astfits"):
        found["gnuastro"] = _reader(["astfits", "FILE"])
    return found


class Corpus:
    """Counts what becomes of files; `wrong` lists what must not be."""

    def __init__(self, naos, directory, judges):
        self.naos, self.dir, self.judges = naos, pathlib.Path(directory), judges
        self.keys = key_options(directory)
        self.files = self.identical = 0
        self.refused, self.wrong = [], []
        self.reads = {kind: collections.Counter() for kind in ("original", "container", "metadata-only", "pixels-only")}
        self.worse = []  # a partial result that a reader refuses though it reads the original

    def judge(self, kind, path, name, original):
        for reader, ok in self.judges.items():
            good = ok(path)
            self.reads[kind][reader] += good
            if kind == "original":
                original[reader] = good
            elif not good and (original[reader] or kind == "container"):
                self.worse.append(f"{name}: {kind}: {reader}")

    def run(self, path, name):
        sealed, opened = self.dir / "sealed.fits", self.dir / "opened.fits"
        self.files += 1
        done = self.naos("fits", "seal", "--force", *self.keys["header"], *self.keys["data"], path, sealed)
        if done.returncode != 0:
            reason = done.stderr.partition("\n")[0].partition(str(path))[2].lstrip(": ")
            self.refused.append((name, reason))
            if done.returncode != 4 or not reason or "NAOS_E_FORMAT" not in done.stderr:
                self.wrong.append(f"{name}: refused without a reason: {done.returncode} {done.stderr}")
            return
        done = self.naos("fits", "open", "--force", *self.keys["header"], *self.keys["data"], sealed, opened)
        if done.returncode != 0 or opened.read_bytes() != pathlib.Path(path).read_bytes():
            self.wrong.append(f"{name}: did not come back: {done.stderr}")
            return
        self.identical += 1
        original = {}
        self.judge("original", opened, name, original)
        self.judge("container", sealed, name, original)
        for kind, key in (("metadata-only", "header"), ("pixels-only", "data")):
            done = self.naos("fits", "open", "--force", *self.keys[key], sealed, opened)
            if done.returncode != 0:
                self.wrong.append(f"{name}: {kind}: {done.stderr}")
                return
            self.judge(kind, opened, name, original)

    def report(self, title):
        """Lines for a person."""
        yield f"{title}: {self.files} files, {self.identical} came back byte for byte, {len(self.refused)} refused"
        if self.identical:
            for kind, counts in self.reads.items():
                yield f"    {kind:<14}" + "".join(f"{reader} {counts[reader]:<5}" for reader in self.judges)
        reasons = collections.defaultdict(list)
        for name, reason in self.refused:
            reasons[reason].append(name)
        for reason, names in reasons.items():
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            yield f"    refused: {reason}: {shown}"


PACKAGES = """eso-midas-testdata python-drizzle-testdata python3-astropy ftools-fv pdl libastro-fits-cfitsio-perl python3-reproject python3-photutils
python3-ccdproc python3-astroscrappy python3-pydl python3-sunpy python3-pysynphot python3-synphot python3-fitsio python3-astroquery
python3-radio-beam python3-regions munipack-core healpy-data iraf-rvsao iraf-noao""".split()


def fetch(package, folder):
    """Unpacks a package of the distribution below folder, without installing it; False where it is not to be had."""
    folder.mkdir()
    got = subprocess.run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package], cwd=folder, capture_output=True, timeout=600)
    if got.returncode != 0:
        return False
    for archive in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True, capture_output=True)
        archive.unlink()
    return True
