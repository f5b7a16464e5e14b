# Completion of tutti for bash; its tables are made by tools/make-manual of what the commands say to --help.
# shellcheck shell=bash disable=SC2207

@TABLES@

_tutti_offer() # none, any, file, dir, or words: what may stand for $cur
{
    case $1 in
    "" | none | any) ;;
    file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    dir) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    *" +so") # or a shared object, in whatever folder
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -W "${1% +so}" -- "$cur"; compgen -f -X '!*.so' -- "$cur"; compgen -d -- "$cur")
        ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur") ;;
    esac
}

_tutti()
{
    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} flag="" named=0 words i

    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _tutti_offer "$(_tutti_words tutti) $(_tutti_flags tutti) help"
        return
    fi
    if [ "$command" = help ]; then
        ((COMP_CWORD == 2)) && _tutti_offer "$(_tutti_words tutti)"
        return
    fi
    # Which words are flags and their values? After those of run comes a program with arguments of its own.
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [ -n "$flag" ]; then
            [ "${COMP_WORDS[i]}" = "=" ] || flag=""
        elif [[ ${COMP_WORDS[i]} == -* ]]; then
            flag=${COMP_WORDS[i]}
            [ "$(_tutti_values "$command" "$flag")" != none ] || flag=""
        elif [ "$command" = run ]; then
            if [ "${COMP_WORDS[i]##*/}" = tutti ]; then
                COMP_WORDS=("${COMP_WORDS[@]:i}")
                COMP_CWORD=$((COMP_CWORD - i))
                _tutti
            elif declare -F _command_offset >/dev/null; then
                _command_offset "$i"
            else
                _tutti_offer file
            fi
            return
        else
            named=$((named + 1))
        fi
    done
    if [ -n "$flag" ]; then
        [ "$cur" != "=" ] || cur=""
        _tutti_offer "$(_tutti_values "$command" "$flag")"
    elif [[ $cur == -* ]]; then
        _tutti_offer "$(_tutti_flags "$command")"
    elif [ "$command" = run ]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -c -f -- "$cur" | sort -u)
    else # data show FILE, bench all_reduce, doctor memory network
        words=$(_tutti_words "$command")
        ((named == 0)) && [ -n "$words" ] || words=$(_tutti_files "$command")
        _tutti_offer "$words"
    fi
}

complete -F _tutti tutti
