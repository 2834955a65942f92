# shellcheck shell=bash
# real files sealed with keys that live in an HSM, through the key manager (the default)
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
export SOFTHSM2_CONF=$work/softhsm2.conf NAOS_CONFIG=$work/naos.conf PATH=$top/build/cmd/naos:$top/build/cmd/naos-keyd:$PATH
(umask 077 && od -An -N8 -tu8 /dev/urandom | tr -d ' \n' >pin)
# softhsm2-util takes a PIN only as an argument or by hand; this one guards nothing but the demonstration
softhsm2-util --init-token --free --label naos-quickstart --pin "$(cat pin)" --so-pin "$(cat pin)" >softhsm2.log 2>&1 ||
	fail "softhsm2-util could not make a token: $(cat softhsm2.log)"
pin_path=$(/usr/bin/python3 -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1]))' "$work/pin")

: >naos.conf
step "Certificates: the key manager and its two clients know each other by them"
run naos ca init ca
run naos ca issue ca keyd --server localhost,127.0.0.1
run naos ca issue ca admin
run naos ca issue ca node17

step "The key manager: it alone has the HSM; the tool that seals never touches the token"
cat >keyd.conf <<TXT
[keyd]
production = no
listen = 127.0.0.1:0
certificate = $work/ca/keyd.pem
key = $work/ca/keyd.key
ca = $work/ca/ca.pem
crl = $work/ca/crl.pem
token = pkcs11:token=naos-quickstart?module-name=softhsm2&pin-source=file:$pin_path
token-store = $work/token.db
database = $work/objects.db
audit = $work/audit

[role admin]
identities = naos://host/admin
operations = all
keys = *

[role node]
identities = naos://host/node*
operations = locate read encrypt decrypt
keys = *
TXT
say "Its configuration:"
sed 's/^/  /' keyd.conf
naos-keyd --config keyd.conf >keyd.out 2>keyd.log &
keyd=$!
trap 'kill "$keyd" 2>/dev/null || true' EXIT
for _ in $(seq 300); do grep -q ready keyd.out && break; kill -0 "$keyd" 2>/dev/null || break; sleep 0.1; done
grep -q ready keyd.out || fail "the key manager did not start: $(cat keyd.log)"
say "\$ naos-keyd --config keyd.conf &"
cat keyd.out
port=$(sed -n 's/.*:\([0-9]*\)$/\1/p' keyd.out)
sed -i "s/^listen = .*/listen = 127.0.0.1:$port/" keyd.conf
unset SOFTHSM2_CONF # from here on nobody but the key manager knows the token
cat >naos.conf <<TXT
[keymanager]
uri = kmip://localhost:$port?cert=$work/ca/node17.pem&key=$work/ca/node17.key&ca=$work/ca/ca.pem

[fileset patients]
id = $(cat /proc/sys/kernel/random/uuid)
TXT
say "The configuration of a node:"
sed 's/^/  /' naos.conf
admin="kmip://localhost:$port?cert=ca/admin.pem&key=ca/admin.key&ca=ca/ca.pem"

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

say
say "To go on by hand:"
say "  cd $work"
say "  export NAOS_CONFIG=\$PWD/naos.conf PATH=$top/build/cmd/naos:$top/build/cmd/naos-keyd:\$PATH"
say "  SOFTHSM2_CONF=\$PWD/softhsm2.conf naos-keyd --config keyd.conf &"
printf '\nDone in %d seconds.  What was made lies in %s.\n' $((SECONDS - started)) "$work"
