# shellcheck shell=bash
# real files sealed with keys that live in an HSM, through the key manager (the default)
#
# Sourced by ./quickstart.  Each command is printed before it runs, so that it can be tried by hand afterwards.
# SPDX-License-Identifier: Apache-2.0
. "$top/tools/quickstart.sh"
begin seal

# Everything in a sealed tree but the first page of each file, which holds the wrapped keys.
data_digest() {
	find "$1" -type f -print0 | sort -z | while IFS= read -r -d '' file; do tail -c +4097 "$file"; done | sha256sum
}

step "An HSM of your own, in software"
make_hsm

step "Certificates: the key manager and its two clients know each other by them"
make_certificates

step "The key manager: it alone has the HSM; the tool that seals never touches the token"
start_keyd
say "Its configuration:"
sed 's/^/  /' keyd.conf
say "\$ naos-keyd --config keyd.conf &"
cat keyd.out
cat >naos.conf <<TXT
[keymanager]
uri = $node

[fileset patients]
id = $(cat /proc/sys/kernel/random/uuid)
TXT
say "The configuration of a node:"
sed 's/^/  /' naos.conf

step "A master key (MEK), made inside the HSM; it never leaves it"
refused 3 naos key create patients
run naos key create patients --keys "$admin"
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
run naos key rotate patients --keys "$admin"
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
run naos audit verify audit --key officer/key.pub --checkpoint officer/checkpoint
say "(who used which key: the log is the key manager's)"
say "\$ naos audit show audit | tail -n 4"
naos audit show audit | tail -n 4

step "Change one bit, as a broken disk or an intruder would"
run /usr/bin/python3 "$top/tools/quickstart/flip.py" sealed/genome/NC_008253.fna 1000000
refused 4 naos open sealed/genome/NC_008253.fna stolen.fna
[ ! -e stolen.fna ] || fail "a damaged file was opened"
run /usr/bin/python3 "$top/tools/quickstart/flip.py" sealed/genome/NC_008253.fna 1000000
run naos open sealed/genome/NC_008253.fna again.fna
run cmp again.fna data/genome/NC_008253.fna

finish
