# shellcheck shell=bash
# real files sealed with keys that live in an HSM (the default)
#
# Sourced by ./quickstart.  Each command is printed before it runs, so that it can be tried by hand afterwards.
# SPDX-License-Identifier: Apache-2.0
work=$top/quickstart.d/seal
started=$SECONDS
rm -rf "$work"
mkdir -p "$work"
cd "$work"

if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi

number=0
step() {
	number=$((number + 1))
	printf '\n%s%d. %s%s\n' "$bold" "$number" "$*" "$plain"
}

# Prints the command and runs it.
run() {
	printf '$ %s\n' "$*"
	"$@"
}

# The same for a command that must end with this exit status.
refused() {
	local wanted=$1 status=0
	shift
	printf '$ %s\n' "$*"
	"$@" || status=$?
	[ "$status" -eq "$wanted" ] || fail "exit status $status, $wanted was expected"
	say "(exit status $status)"
}

# Everything in a sealed tree but the first page of each file, which holds the wrapped keys.
data_digest() {
	find "$1" -type f -print0 | sort -z | while IFS= read -r -d '' file; do tail -c +4097 "$file"; done | sha256sum
}

step "An HSM of your own, in software"
mkdir tokens
cat >softhsm2.conf <<TXT
directories.tokendir = $work/tokens
objectstore.backend = file
log.level = ERROR
TXT
export SOFTHSM2_CONF=$work/softhsm2.conf NAOS_CONFIG=$work/naos.conf PATH=$top/build/cmd/naos:$PATH
(umask 077 && od -An -N8 -tu8 /dev/urandom | tr -d ' \n' >pin)
# softhsm2-util takes a PIN only as an argument or by hand; this one guards nothing but the demonstration
softhsm2-util --init-token --free --label naos-quickstart --pin "$(cat pin)" --so-pin "$(cat pin)" >softhsm2.log 2>&1 ||
	fail "softhsm2-util could not make a token: $(cat softhsm2.log)"
pin_path=$(/usr/bin/python3 -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1]))' "$work/pin")
cat >naos.conf <<TXT
[keymanager]
uri = pkcs11:token=naos-quickstart?module-name=softhsm2&pin-source=file:$pin_path
store = $work/keys.db

[audit]
log = $work/audit

[fileset patients]
id = $(cat /proc/sys/kernel/random/uuid)
TXT
say "To go on by hand afterwards:"
say "  cd $work"
say "  export SOFTHSM2_CONF=\$PWD/softhsm2.conf NAOS_CONFIG=\$PWD/naos.conf PATH=$top/build/cmd/naos:\$PATH"
say "The configuration:"
sed 's/^/  /' naos.conf

step "A master key (MEK), made inside the HSM; it never leaves it"
run naos key create patients
run naos key list
say "(a security officer keeps a copy of the audit log's public key and first checkpoint elsewhere)"
mkdir officer
run cp audit/key.pub audit/checkpoint officer/

step "Real data: a genome, DICOM images, an image of the Hubble telescope"
mkdir -p data/genome data/dicom data/telescope
gzip -dc /usr/share/doc/bowtie/examples/genomes/NC_008253.fna.gz >data/genome/NC_008253.fna
cp /usr/lib/python3/dist-packages/pydicom/data/test_files/*.dcm data/dicom/
cp /usr/share/python-drizzle/test_data/j8bt06nyq_flt.fits data/telescope/
run du -sh data/genome data/dicom data/telescope

step "Seal the tree"
run naos seal data sealed --fileset patients
run naos info sealed/genome/NC_008253.fna

step "Look for what is in the originals in the bytes of the sealed files"
run /usr/bin/python3 "$top/tools/quickstart/search.py" data sealed || fail "something was found in the ciphertext"

step "Rotate the MEK and wrap the file keys anew; the data is not touched"
before=$(data_digest sealed)
run naos key rotate patients
run naos rewrap sealed
[ "$(data_digest sealed)" = "$before" ] || fail "the data changed"
say "(beyond the first page of each file no byte changed: SHA-256 ${before:0:16}… before and after)"
run naos info sealed/genome/NC_008253.fna

step "Open it and compare each bit"
run naos open sealed opened
run diff -r data opened
say "(no difference)"

step "Check every bit of the sealed tree, and the audit log"
run naos verify sealed
run naos audit verify --key officer/key.pub --checkpoint officer/checkpoint
run naos audit show

step "Change one bit, as a broken disk or an intruder would"
run /usr/bin/python3 "$top/tools/quickstart/flip.py" sealed/genome/NC_008253.fna 1000000
refused 4 naos open sealed/genome/NC_008253.fna stolen.fna
[ ! -e stolen.fna ] || fail "a damaged file was opened"
run /usr/bin/python3 "$top/tools/quickstart/flip.py" sealed/genome/NC_008253.fna 1000000
run naos open sealed/genome/NC_008253.fna again.fna
run cmp again.fna data/genome/NC_008253.fna

printf '\nDone in %d seconds.  What was made lies in %s.\n' $((SECONDS - started)) "$work"
