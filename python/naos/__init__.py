# SPDX-License-Identifier: Apache-2.0
"""Frames from Python: sealed FITS files whose headers and data have keys of their own.

    import naos
    with naos.open("image.sealed.fits") as hdus:      # an astropy HDUList; units are decrypted when they are used
        print(hdus[1].header["OBJECT"], hdus[1].data.mean())
        corner = hdus[1].section[0:256, 0:256]        # reads and decrypts the segments that hold it
    with naos.Frame("image.sealed.fits", header_key=k1, data_key=k2) as frame:
        print(frame.level)                            # "full", "metadata-only", "pixels-only" or "denied"
        part = frame.cutout("[101:356,1:256]", unit="SCI")
        pixels = frame.section("SCI")[0:256, 100:356]
    stamp = naos.cutout("image.sealed.fits", center=(161.265, -59.684), size=0.01)
    naos.seal("image.fits", "image.sealed.fits", collection="survey")
    naos.info("image.sealed.fits")["collection_id"]   # without a key

Everything goes through the public C interface of libnaos (naos/frame.h). Keys are bytes of 16 or 32, or hexadecimal digits; without
any the key manager of the configuration is asked. Errors are exceptions: one class for each code (naos.WrongKeyError,
naos.TamperedError, naos.NotFoundError, ...), below one for each category (naos.IntegrityError, naos.DeniedError, ...), below naos.Error.
"""
from ._library import CLASSES, DeniedError, Error, IntegrityError, KeyManagerError, SystemFailure, UsageError
from .frame import Frame, cutout, info, open, seal

globals().update({kind.__name__: kind for kind in CLASSES.values()})  # one exception for each code
__all__ = ["Frame", "cutout", "open", "seal", "info", "Error", "UsageError", "SystemFailure", "DeniedError", "IntegrityError", "KeyManagerError",
           *sorted({kind.__name__ for kind in CLASSES.values()} - {"UsageError", "SystemFailure", "DeniedError", "KeyManagerError"})]
