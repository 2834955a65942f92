# shellcheck shell=bash
# telescope images: one key for headers, one for pixels; three levels of access, cut-outs, astropy, an audit trail
#
# Sourced by ./quickstart.  SPDX-License-Identifier: Apache-2.0
. "$top/tools/quickstart.sh"
ninja -C "$top/build" --quiet "libnaos.so.$(sed -n "s/^  version: '\(.*\)',$/\1/p" "$top/meson.build")" >/dev/null || fail "the build failed"
export PYTHONPATH=$top/python NAOS_LIBRARY=$top/build/libnaos.so.0 PYTHONDONTWRITEBYTECODE=1
images=/usr/share/python-drizzle/test_data
begin frames

# as PERSON COMMAND...: with that person's certificate.
as() {
	local who=$1
	shift
	printf '%s$ %s\n' "$who" "$(shown "$@")"
	NAOS_CONFIG=$work/$who.conf "$@"
}

# The same for a command that must end with this exit status.
refused_as() {
	local who=$1 wanted=$2 status=0
	shift 2
	printf '%s$ %s\n' "$who" "$(shown "$@")"
	NAOS_CONFIG=$work/$who.conf "$@" || status=$?
	[ "$status" -eq "$wanted" ] || fail "exit status $status, $wanted was expected"
	say "(exit status $status)"
}

# sources IMAGE: how many stars and galaxies SExtractor finds; the catalogue is IMAGE.cat.
sources() {
	local from=/usr/share/source-extractor
	rm -f "$1.cat"
	source-extractor "$1" -c $from/default.sex -PARAMETERS_NAME columns.param -FILTER_NAME $from/default.conv \
		-STARNNW_NAME $from/default.nnw -CATALOG_NAME "$1.cat" -CATALOG_TYPE ASCII -VERBOSE_TYPE QUIET >"$1.log" 2>&1 || true
	touch "$1.cat"
	printf '%-28s %6d sources\n' "$1" "$(wc -l <"$1.cat")"
}
printf '%s\n' NUMBER X_IMAGE Y_IMAGE FLUX_AUTO FLUXERR_AUTO FLAGS >columns.param

step "A key manager in front of an HSM, and who may do what with the keys of the collection 'survey'"
make_hsm
make_certificates >certificates.log
for who in archive observer librarian classifier; do naos ca issue ca $who >>certificates.log; done
roles="
[role archive]
identities = naos://host/archive
operations = locate read encrypt
keys = naos:survey-*

[role observer]
identities = naos://host/observer
operations = locate read decrypt
keys = naos:survey-*

[role librarian]
identities = naos://host/librarian
operations = locate read decrypt
keys = naos:survey-header:*

[role classifier]
identities = naos://host/classifier
operations = locate read decrypt
keys = naos:survey-data:*"
start_keyd
cat keyd.out
printf '%s\n' "$roles" | sed '1d;s/^./  &/'
say "(the archive seals and can't open; the librarian may see headers, the classifier pixels, the observer both)"
for who in admin archive observer librarian classifier; do
	cat >$who.conf <<TXT
[keymanager]
uri = kmip://localhost:$port?cert=$work/ca/$who.pem&key=$work/ca/$who.key&ca=$work/ca/ca.pem

[collection survey]
TXT
done
cp observer.conf naos.conf

step "Two master keys (MEKs), made in the HSM: one for headers, one for pixels"
as admin naos key create survey-header
as admin naos key create survey-data
mkdir officer
cp audit/key.pub audit/checkpoint officer/ # kept elsewhere by a security officer: the log can't be rewritten unseen

step "Seal images of the Hubble telescope"
mkdir originals sealed
cp $images/j8bt06nyq_flt.fits $images/input1.fits originals/
for name in j8bt06nyq_flt input1; do
	as archive naos fits seal --collection survey originals/$name.fits sealed/$name.fits
done
refused_as archive 3 naos fits open sealed/input1.fits stolen.fits

step "What is known without a key"
run naos fits info sealed/j8bt06nyq_flt.fits
run fitsverify -q sealed/j8bt06nyq_flt.fits
say "(an archive can handle it like any FITS file)"

step "The observer has both keys: the original, byte for byte"
as observer naos fits open sealed/j8bt06nyq_flt.fits full.fits
run cmp full.fits originals/j8bt06nyq_flt.fits

step "The librarian sees headers; the classifier sees pixels"
as librarian naos fits open sealed/j8bt06nyq_flt.fits metadata.fits
as classifier naos fits open sealed/j8bt06nyq_flt.fits pixels.fits
run fitsverify -q metadata.fits
run fitsverify -q pixels.fits
say "What astropy reads in them:"
/usr/bin/python3 "$top/tools/quickstart/levels.py" full.fits metadata.fits pixels.fits

step "Science: SExtractor on each"
cp sealed/j8bt06nyq_flt.fits sealed.fits
for name in full sealed metadata pixels; do sources $name.fits; done
cp originals/j8bt06nyq_flt.fits original.fits
sources original.fits >/dev/null
run cmp full.fits.cat original.fits.cat

step "A cut-out: only the segments that hold it are read and decrypted"
as observer naos fits cutout -u 1 --section "[101:356,1:256]" sealed/j8bt06nyq_flt.fits part.fits
run ls -l part.fits sealed/j8bt06nyq_flt.fits

step "In Python: an astropy HDUList, decrypted when it is used"
say "\$ cat observe.py"
cat >observe.py <<'PY'
import naos
with naos.open("sealed/j8bt06nyq_flt.fits") as hdus:        # the keys come from the key manager
    print(hdus[0].header["TELESCOP"], hdus[0].header["TARGNAME"], "exposed for", hdus[0].header["EXPTIME"], "s")
    print("corner:", hdus[1].section[0:64, 0:64].mean(), " all:", hdus[1].data.mean())
PY
sed 's/^/  /' observe.py
as observer /usr/bin/python3 observe.py

step "Change one bit of the pixels, as a broken disk or an intruder would"
run /usr/bin/python3 "$top/tools/quickstart/flip.py" sealed/j8bt06nyq_flt.fits 5000000
refused_as observer 4 naos fits verify sealed/j8bt06nyq_flt.fits
refused_as observer 4 naos fits open --require-full sealed/j8bt06nyq_flt.fits wrong.fits
[ ! -e wrong.fits ] || fail "a changed frame was opened"
run /usr/bin/python3 "$top/tools/quickstart/flip.py" sealed/j8bt06nyq_flt.fits 5000000
as observer naos fits verify sealed/j8bt06nyq_flt.fits

step "Who used the keys of the collection: the log of the key manager"
run naos audit verify audit --key officer/key.pub --checkpoint officer/checkpoint
say "\$ naos audit show audit --action key.decrypt | tail -n 2"
naos audit show audit --action key.decrypt | tail -n 2
say "By key:"
naos audit show audit --action 'key.*' --json | /usr/bin/python3 "$top/tools/quickstart/uses.py" survey-header survey-data

finish
