# shellcheck shell=bash
# a mounted file set: a real analysis works in it as in any directory, and only ciphertext is stored
#
# Sourced by ./quickstart.  SPDX-License-Identifier: Apache-2.0
. "$top/tools/quickstart.sh"
[ -r /dev/fuse ] && [ -w /dev/fuse ] || fail "/dev/fuse can't be opened: nothing can be mounted here"
begin mount

# The work of a researcher: reads of a genome are simulated, aligned and sorted, in the current directory.
analysis() {
	bwa index genome.fna
	wgsim -S 7 -N 20000 -1 100 -2 100 genome.fna reads.1.fq reads.2.fq >mutations.txt
	bwa mem -t 2 -K 1000000 genome.fna reads.1.fq reads.2.fq >aligned.sam
	samtools sort --no-PG -o aligned.bam aligned.sam
	samtools index aligned.bam
}

timed() {
	local from to
	from=$(date +%s%N)
	(cd "$1" && analysis) >"$2" 2>&1 || fail "the analysis failed: $(tail -n 5 "$2")"
	to=$(date +%s%N)
	printf '(%d.%02d seconds)\n' $(((to - from) / 1000000000)) $(((to - from) / 10000000 % 100))
}

step "An HSM in software, certificates, and the key manager"
make_hsm
make_certificates >certificates.log
start_keyd
cat keyd.out

step "A file set: a directory for ciphertext, a mount point, and a master key (MEK) in the HSM"
mkdir -p below genomes
cat >naos.conf <<TXT
[keymanager]
uri = $node

[fileset genomes]
path = $work/below
mountpoint = $work/genomes
TXT
run naos key create genomes --keys "$admin"
say "The configuration of a node:"
sed 's/^/  /' naos.conf

step "Mount it"
run naos-fs genomes
trap 'fusermount3 -u -z "$work/genomes" 2>/dev/null || true; kill "$keyd" 2>/dev/null || true' EXIT
run findmnt -o TARGET,SOURCE,FSTYPE "$work/genomes"

step "A real analysis in it: bwa index, reads by wgsim, bwa mem, samtools sort"
mkdir -p outside
gzip -dc /usr/share/doc/bowtie/examples/genomes/NC_008253.fna.gz | tee outside/genome.fna >genomes/genome.fna
declare -f analysis | sed '1,2d;$d;s/^    /  /;s/;$//'
say "in the mounted file set:"
timed genomes inside.log
run ls -l genomes

step "The same outside, to compare: bit-identical"
timed outside outside.log
run diff -r outside genomes
say "(no difference)"

step "What is stored: sealed files, each with a key of its own, wrapped by the MEK"
run ls -l below
run naos info below/aligned.bam
run /usr/bin/python3 "$top/tools/quickstart/search.py" outside below || fail "something was found in the ciphertext"

step "Unmount; everything is sealed now"
run naos fileset umount genomes
run naos verify below 2>&1 | tee verify.log
! grep -q 'not sealed' verify.log || fail "files were not sealed when the mount had ended"
run naos fileset check genomes --keyless

step "Who used which key: the log is the key manager's"
run naos audit verify audit
say "\$ naos audit show audit | tail -n 3"
naos audit show audit | tail -n 3

finish
