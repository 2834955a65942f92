# SPDX-License-Identifier: Apache-2.0
"""Files of GpuFitsCrypt: every sample, in both modes, as that program itself opens it; cards as its other functions and newer CFITSIOs
write them; what passes for one of them and is none."""
import re

import pytest

import frame_files

# What that program makes of the sample: given back as it was, or (its own fault) something else; the rest is identical.
NO_FITS = {"comp_rice_f32", "comp_rice_i16", "mef_2img"}  # an extension without its primary unit
SCALED = {"i16_bscale", "u16_low"}
ANOTHER = SCALED | {"bintable", "i16_blankend", "img_plus_ext"}
REFUSED_BY_ITSELF = {"bintable.gcm", "naxis0.gcm"}  # it can't open what it sealed


@pytest.fixture
def legacy(shared):
    return shared / "data/frames/legacy"


@pytest.fixture
def words(tmp_path):
    keys = frame_files.key_files(tmp_path)
    return [*keys["header", "right"], *keys["data", "right"]]


def migrated(naos, words, path, folder, *options):
    """The file that comes out of importing and opening, and the warnings."""
    done = naos("fits", "import-legacy", "--force", *options, *words, path, folder / "new.fits")
    assert done.returncode == 0, done.stderr
    naos.ok("fits", "open", "--force", *words, folder / "new.fits", folder / "plain.fits")
    return (folder / "plain.fits").read_bytes(), done.stderr


def test_every_sample_gives_what_that_program_gives(naos, legacy, words, tmp_path):
    samples = sorted((legacy / "enc").glob("*.fits"))
    assert len(samples) == 50
    identical = 0
    for path in samples:
        name, mode = path.name.split(".")[:2]
        (info,) = naos.json("fits", "info", path)
        assert (info["format"], info["mode"], info["authenticated"]) == ("legacy", mode, False)
        if name in NO_FITS:
            assert "no FITS file" in naos.fails(4, "fits", "import-legacy", *words, path, tmp_path / "no.fits")
            continue
        content, warnings = migrated(naos, words, path, tmp_path)
        assert "never authenticated" in warnings and ("scaled already" in warnings) == (name in SCALED)
        assert (content == (legacy / "originals" / f"{name}.fits").read_bytes()) == (name not in ANOTHER), path.name
        theirs = legacy / "dec" / path.name
        assert theirs.exists() == (f"{name}.{mode}" not in REFUSED_BY_ITSELF)
        assert not theirs.exists() or content == theirs.read_bytes(), path.name
        identical += name not in ANOTHER
    assert identical == 34  # that program: 33


def test_version_1_takes_what_is_migrated(naos, legacy, words, tmp_path):
    content, _ = migrated(naos, words, legacy / "enc/f32_2d.gcm.fits", tmp_path, "--format", "1")
    assert content == (legacy / "originals/f32_2d.fits").read_bytes()
    (info,) = naos.json("fits", "info", tmp_path / "new.fits")
    assert info["format"] == 1


def test_frames_commands_refuse_them_and_say_what_to_do(naos, legacy, words, tmp_path):
    path = legacy / "enc/f32_2d.ctr.fits"
    for command in (["open", path, tmp_path / "no.fits"], ["verify", path]):
        assert "naos fits import-legacy" in naos.fails(4, "fits", command[0], *words, *command[1:])
    assert not (tmp_path / "no.fits").exists()


# --- other layouts of the same content -----------------------------------------------------------------------------------------------


def card(text):
    return text.ljust(80)[:80].encode()


def parts_of(image):
    """Digits of the keywords and the plain keywords of a sample; its table."""
    text, digits, plain, last = image.decode("latin-1"), {}, [], None
    for at in range(0, len(text), 80):
        line = text[at:at + 80]
        string = re.search(r"= '+([0-9a-f]+)&?'", line)
        if line.startswith("END "):
            return digits, plain, image[-(-(at + 80) // 2880) * 2880:]
        if string:
            last = line.removeprefix("HIERARCH ").split("=")[0].strip()
            digits[last] = string[1]
        elif line.startswith("CONTINUE"):
            digits[last] += re.search(r"'([0-9a-f]*)", line)[1]
        elif line.startswith("ORIG_"):
            plain.append(line[:30])


def long_string(name, digits, comment, empty_continue):
    """As CFITSIO before 4.3 has it, or since: the comment in a CONTINUE card of its own."""
    start, cards = f"{name:8}= ", []
    room = 67 - max(0, len(start) - 10)
    while len(digits) > room:
        cards.append(card(f"{start}'{digits[:room]}&'"))
        digits, start, room = digits[room:], "CONTINUE  ", 67
    if empty_continue:
        return b"".join(cards) + card(f"{start}'{digits}&'") + card(f"CONTINUE  '' / {comment}")
    return b"".join(cards) + card(f"{start}'{digits}' / {comment}")


def rewritten(image, order, empty_continue, quotes, column):
    digits, plain, table = parts_of(image)
    cards = [card("SIMPLE  =                    T / file does conform to FITS standard"), card("BITPIX  =                    8"),
             card("NAXIS   =                    0"), card("EXTEND  =                    T")]
    comments = {"NONCE_H": "Header Nonce", "NONCE_D": "Data Nonce", "AUTHTAG_H": "Header Auth Tag", "AUTHTAG_D": "Data Auth Tag",
                "ENCHDR": "Encrypted Header"}
    for name in order:
        if name == "ORIG":
            cards += [card(f"{line} / Original") for line in plain]
        elif name in digits and name.startswith("NONCE"):
            value = f"''{digits[name]}''" if quotes else digits[name]
            cards.append(card(f"{name:8}= '{value}' / {comments[name]}"))
        elif name in digits:
            keyword = f"HIERARCH {name}" if len(name) > 8 else name
            cards.append(long_string(keyword, digits[name], comments[name], empty_continue))
    header = b"".join(cards) + card("END")
    header += b" " * (-len(header) % 2880)
    return header + table.replace(b"RAW_BYTES      ", column.ljust(15), 1)


@pytest.mark.parametrize("mode", ("gcm", "ctr"))
@pytest.mark.parametrize("empty_continue", (False, True), ids=("cfitsio-4.2", "cfitsio-4.3"))
def test_cards_of_memory_functions_and_of_newer_cfitsio(mode, empty_continue, naos, legacy, words, tmp_path):
    in_memory = ("NONCE_H", "NONCE_D", "AUTHTAG_H", "AUTHTAG_D", "ENCHDR", "ORIG")
    of_files = ("NONCE_H", "NONCE_D", "ENCHDR", "AUTHTAG_H", "ORIG", "AUTHTAG_D")
    for name in ("f32_2d", "f32_longhdr", "i08_1d_7", "f64_2d"):
        image = (legacy / f"enc/{name}.{mode}.fits").read_bytes()
        for order, quotes, column in ((in_memory, False, b"COMPRESSED_DATA"), (of_files, True, b"RAW_BYTES")):
            path = tmp_path / "other.fits"
            path.write_bytes(rewritten(image, order, empty_continue, quotes, column))
            (info,) = naos.json("fits", "info", path)
            assert (info["format"], info["mode"]) == ("legacy", mode)
            content, warnings = migrated(naos, words, path, tmp_path)
            assert "never authenticated" in warnings
            assert content == (legacy / f"originals/{name}.fits").read_bytes(), (name, order)


def test_damaged_ones_are_refused_with_a_reason(naos, legacy, words, tmp_path):
    image, path = (legacy / "enc/i08_2d.gcm.fits").read_bytes(), tmp_path / "bad.fits"
    digits = image.index(b"ENCHDR  = '") + 11
    cases = {"not hexadecimal": image[:digits] + b"xx" + image[digits + 2:], "nonces": re.sub(rb"(NONCE_H = '+).", rb"\1z", image, count=1),
             "make no image": re.sub(rb"ORIG_BPX=  ( +)8", rb"ORIG_BPX= \g<1>24", image, count=1), "pixels": image[:-2880],
             "header key": image[:digits] + b"0000000000" + image[digits + 10:]}
    for reason, content in cases.items():
        path.write_bytes(content)
        assert reason in naos.fails(4, "fits", "import-legacy", *words, path, tmp_path / "no.fits"), reason
    assert not (tmp_path / "no.fits").exists()


# --- passing for another ---------------------------------------------------------------------------------------------------------------


def test_a_frame_without_its_version_is_no_legacy_file_and_the_other_way_round(naos, legacy, words, tmp_path):
    plain = tmp_path / "plain.fits"
    plain.write_bytes(frame_files.image())
    naos.ok("fits", "seal", "--format", "1", *words, plain, tmp_path / "sealed.fits")
    frame = (tmp_path / "sealed.fits").read_bytes()
    disguised = tmp_path / "disguised.fits"
    disguised.write_bytes(frame.replace(b"NAOSFRM =", b"COMMENT  ", 1))
    assert naos.json("fits", "info", disguised)[0]["format"] == "legacy"
    assert "not its header key" in naos.fails(4, "fits", "import-legacy", *words, disguised, tmp_path / "no.fits")
    naos.fails(4, "fits", "open", *words, disguised, tmp_path / "no.fits")
    assert "no file of GpuFitsCrypt" in naos.fails(4, "fits", "import-legacy", *words, tmp_path / "sealed.fits", tmp_path / "no.fits")
    old = (legacy / "enc/f32_2d.gcm.fits").read_bytes()
    for version in (1, 2):
        label = card(f"NAOSFRM = {version:20} / Naos frame: version of its format")
        disguised.write_bytes(old[:320] + label + old[400:])
        naos.fails(4, "fits", "open", *words, disguised, tmp_path / "no.fits")
    assert not (tmp_path / "no.fits").exists()
