# Sourced by ./quickstart and ./check: need_packages PURPOSE... installs what tools/packages.txt lists and is missing.
# Where all is there it does nothing, so it needs no root then.  SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash

say() {
	printf '%s\n' "$*"
}

fail() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# Names of the listed packages of these purposes that are not installed.
missing_packages() {
	local purpose package what wanted=" $* "
	while read -r purpose package what; do
		case $purpose in '#'* | '') continue ;; esac
		case $wanted in *" $purpose "*) ;; *) continue ;; esac
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || say "$package"
	done <"$top/tools/packages.txt"
}

need_packages() {
	if ! command -v dpkg-query >/dev/null; then
		say "This is not a Debian system: tools/packages.txt lists what is needed; the build says what is missing."
		return
	fi
	local missing root=()
	mapfile -t missing < <(missing_packages "$@")
	if [ ${#missing[@]} -eq 0 ]; then
		return
	fi
	say "These Debian packages are missing; they are installed with apt-get now:"
	local package
	for package in "${missing[@]}"; do
		awk -v name="$package" '$2 == name { $1 = ""; sub(/^ /, "  "); print; exit }' "$top/tools/packages.txt"
	done
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || fail "installing needs root: run 'apt-get install ${missing[*]}' as root, then this again"
		root=(sudo)
	fi
	local log
	log=$(mktemp)
	if ! { "${root[@]}" apt-get -qq update &&
		"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=600 install --no-install-recommends \
			"${missing[@]}"; } >"$log" 2>&1 </dev/null; then
		cat "$log" >&2
		rm -f "$log"
		fail "apt-get could not install the packages above"
	fi
	rm -f "$log"
}

# configure DIRECTORY OPTION...: meson setup where that was not done yet; ninja reconfigures by itself when needed.
configure() {
	local dir=$1
	shift
	if [ ! -f "$dir/build.ninja" ]; then
		rm -rf "$dir" # what an interrupted setup left
		meson setup "$dir" "$@" >"$dir.log" 2>&1 || {
			cat "$dir.log" >&2
			fail "meson could not set up $dir"
		}
		rm -f "$dir.log"
	fi
}
