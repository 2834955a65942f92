# shellcheck shell=bash
# What the parts of ./quickstart share: printing commands before they run, an HSM in software, certificates, the key manager.
# SPDX-License-Identifier: Apache-2.0

if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi
started=$SECONDS
number=0

# begin PART: an empty folder for it, which becomes the current one.
begin() {
	work=$top/quickstart.d/$1
	rm -rf "$work"
	mkdir -p "$work"
	cd "$work"
	export NAOS_CONFIG=$work/naos.conf PATH=$top/build/cmd/naos:$top/build/cmd/naos-keyd:$top/build/cmd/naos-fs:$PATH
	: >naos.conf
}

step() {
	number=$((number + 1))
	printf '\n%s%d. %s%s\n' "$bold" "$number" "$*" "$plain"
}

# A command as it can be typed: what a shell would take for its own is quoted.
shown() {
	local word text=
	for word; do
		[[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word=${word@Q}
		text+="${text:+ }$word"
	done
	printf '%s' "$text"
}

# Prints the command and runs it.
run() {
	printf '$ %s\n' "$(shown "$@")"
	"$@"
}

# The same for a command that must end with this exit status.
refused() {
	local wanted=$1 status=0
	shift
	printf '$ %s\n' "$(shown "$@")"
	"$@" || status=$?
	[ "$status" -eq "$wanted" ] || fail "exit status $status, $wanted was expected"
	say "(exit status $status)"
}

# An HSM in software with a random PIN in the file pin; its address is $token.
make_hsm() {
	mkdir tokens
	cat >softhsm2.conf <<TXT
directories.tokendir = $work/tokens
objectstore.backend = file
log.level = ERROR
TXT
	(umask 077 && od -An -N8 -tu8 /dev/urandom | tr -d ' \n' >pin)
	# softhsm2-util takes a PIN only as an argument or by hand; this one guards nothing but the demonstration
	SOFTHSM2_CONF=$work/softhsm2.conf softhsm2-util --init-token --free --label naos-quickstart --pin "$(cat pin)" \
		--so-pin "$(cat pin)" >softhsm2.log 2>&1 || fail "softhsm2-util could not make a token: $(cat softhsm2.log)"
	token="pkcs11:token=naos-quickstart?module-name=softhsm2&pin-source=file:$(
		/usr/bin/python3 -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1]))' "$work/pin")"
}

# Certificates of the key manager and its two clients, in ca/.
make_certificates() {
	run naos ca init ca
	run naos ca issue ca keyd --server localhost,127.0.0.1
	run naos ca issue ca admin
	run naos ca issue ca node17
}

# Writes keyd.conf, with the sections in $roles, and starts the key manager: $port, and its addresses $admin (all rights) and $node (may use keys).
start_keyd() {
	cat >keyd.conf <<TXT
[keyd]
production = no
listen = 127.0.0.1:0
certificate = $work/ca/keyd.pem
key = $work/ca/keyd.key
ca = $work/ca/ca.pem
crl = $work/ca/crl.pem
token = $token
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
	printf '%s\n' "${roles-}" >>keyd.conf
	# nobody but the key manager knows the token
	SOFTHSM2_CONF=$work/softhsm2.conf naos-keyd --config keyd.conf >keyd.out 2>keyd.log &
	keyd=$!
	trap 'kill "$keyd" 2>/dev/null || true' EXIT
	for _ in $(seq 300); do grep -q ready keyd.out && break; kill -0 "$keyd" 2>/dev/null || break; sleep 0.1; done
	grep -q ready keyd.out || fail "the key manager did not start: $(cat keyd.log)"
	port=$(sed -n 's/.*:\([0-9]*\)$/\1/p' keyd.out)
	sed -i "s/^listen = .*/listen = 127.0.0.1:$port/" keyd.conf
	admin="kmip://localhost:$port?cert=ca/admin.pem&key=ca/admin.key&ca=ca/ca.pem"
	node="kmip://localhost:$port?cert=$work/ca/node17.pem&key=$work/ca/node17.key&ca=$work/ca/ca.pem"
}

# What lies there now, and how to go on.
finish() {
	say
	say "To go on by hand:"
	say "  cd $work"
	say "  export NAOS_CONFIG=\$PWD/naos.conf PATH=$top/build/cmd/naos:$top/build/cmd/naos-keyd:$top/build/cmd/naos-fs:\$PATH"
	say "  SOFTHSM2_CONF=\$PWD/softhsm2.conf naos-keyd --config keyd.conf &"
	printf '\nDone in %d seconds.  What was made lies in %s.\n' $((SECONDS - started)) "$work"
}
