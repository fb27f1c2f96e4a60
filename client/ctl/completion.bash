# SPDX-License-Identifier: MIT
# bash completion for dmasyncctl(1). It asks dmasyncctl --help, so it knows what this version knows.

_dmasyncctl()
{
	local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]}
	local previous=${COMP_WORDS[COMP_CWORD - 1]} word help
	local -a command=()

	# The command so far, without options and the path behind --socket.
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ $word == --socket ]]; then
			((i++))
		elif [[ $word != -* && (${#command[@]} == 0 || ${command[*]} == bench) ]]; then
			command+=("$word")
		fi
	done
	help=$("$program" "${command[@]}" --help 2>/dev/null) || return

	if [[ $previous == --socket ]]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		return
	fi
	# "  --memory KIND   memory of the buffer: auto, cma, ..."
	if [[ $previous == --* ]]; then
		word=$(sed -n "s/^  $previous [A-Z].*: \(.*\)/\1/p" <<<"$help")
		if [[ -n $word ]]; then
			mapfile -t COMPREPLY < <(compgen -W "${word//,/}" -- "$current")
			return
		fi
	fi
	if [[ $current == -* ]]; then
		word=$(sed -n 's/^  \(--[a-z-]*\).*/\1/p' <<<"$help")
	elif ((${#command[@]} == 0)) || [[ ${command[*]} == bench ]]; then
		word=$(sed -n 's/^  \([a-z]\{1,\}\) .*/\1/p' <<<"$help")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		return
	fi
	mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
}

complete -o filenames -F _dmasyncctl dmasyncctl
