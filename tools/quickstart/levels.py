# Prints what astropy reads in files that are the same image at several levels: levels.py FILE...  SPDX-License-Identifier: Apache-2.0
import sys
import warnings

from astropy.io import fits

warnings.simplefilter("ignore")
print(f"{'file':<16}{'units':>6}{'cards':>7}  {'target':<10}{'mean of pixels':>15}{'type':>9}")
for path in sys.argv[1:]:
    with fits.open(path, memmap=False) as hdus:
        cards = sum(len(hdu.header) for hdu in hdus)
        target = hdus[0].header.get("TARGNAME", "-")
        print(f"{path:<16}{len(hdus):>6}{cards:>7}  {target:<10}{hdus[1].data.mean():>15.4f}{str(hdus[1].data.dtype):>9}")
