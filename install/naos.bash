# Completion of naos for bash; `naos help --words` says what there is.  SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash

_naos() {
	local current=${COMP_WORDS[COMP_CWORD]} word path='' options='' first='' second='' line takes_argument=' ' common=''
	local -a table=()
	mapfile -t table < <("${COMP_WORDS[0]}" help --words 2>/dev/null)
	COMPREPLY=()
	common=${table[0]-}
	for word in $common; do
		[[ $word == *= ]] && takes_argument+="${word%=} "
	done

	# the words before the cursor that name the command
	local i skip=no
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ $skip == yes ]]; then
			skip=no
		elif [[ $takes_argument == *" $word "* ]]; then
			skip=yes
		elif [[ $word != -* && $word != = ]]; then
			if [[ -z $first ]]; then first=$word; elif [[ -z $second ]]; then second=$word; fi
		fi
	done

	local names='' verbs=''
	for line in "${table[@]:1}"; do
		path=${line%%:*}
		[[ " $names " == *" ${path%% *} "* ]] || names+=" ${path%% *}"
		[[ $path == "$first "* ]] && verbs+=" ${path#* }"
		if [[ $path == "$first" || ( -n $second && $path == "$first $second" ) ]]; then
			options=${line#*:}
		fi
	done
	for word in $options; do
		[[ $word == *= ]] && takes_argument+="${word%=} "
	done

	if [[ $COMP_CWORD -gt 1 && $takes_argument == *" ${COMP_WORDS[COMP_CWORD - 1]} "* ]]; then
		return # its argument: file names
	elif [[ $current == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "${options//=/} ${common//=/}" -- "$current")
	elif [[ -z $first ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$names" -- "$current")
	elif [[ -n $verbs && -z $second ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$current")
	elif [[ $first == help && -z $second ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$names" -- "$current")
	fi
}
complete -o default -F _naos naos
