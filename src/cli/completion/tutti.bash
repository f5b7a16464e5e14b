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

_tutti_offer_spec() # digits:train, cifar10:FOLDER/train, ./FILE.so:FOLDER/train
{
    local set=${cur%%:*} specs typed=$cur
    specs=$(_tutti_specs "$1")
    compopt -o nospace 2>/dev/null
    if [[ $cur == *:* && " $specs " != *" $set:t"* ]]; then # after the colon comes a folder
        cur=${cur#*:}
        mapfile -t COMPREPLY < <(compgen -d -P "$set:" -- "$cur"; [[ $cur != */ ]] || compgen -P "$set:" -W "${cur}train ${cur}test" -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -W "$specs" -- "$cur"; [[ $cur == *:* ]] || { compgen -f -X '!*.so' -- "$cur"; compgen -d -S / -- "$cur"; })
    fi
    # Bash replaces only what follows the last colon.
    [[ $typed != *:* || $COMP_WORDBREAKS != *:* ]] || COMPREPLY=("${COMPREPLY[@]##*:}")
}

_tutti()
{
    local cur command flag="" named=0 operands last kind i joined=()

    COMPREPLY=()
    for ((i = 0; i <= COMP_CWORD; i++)); do # bash breaks words at colons too
        if ((i > 1)) && [[ ${COMP_WORDS[i]} == :* || ${COMP_WORDS[i - 1]} == *: ]]; then
            joined[${#joined[@]} - 1]+=${COMP_WORDS[i]}
        else
            joined+=("${COMP_WORDS[i]}")
        fi
    done
    command=${joined[1]} cur=${joined[${#joined[@]} - 1]}
    if ((COMP_CWORD == 1)); then
        _tutti_offer "$(_tutti_words tutti) $(_tutti_flags tutti) help"
        return
    fi
    if [ "$command" = help ]; then
        ((COMP_CWORD == 2)) && _tutti_offer "$(_tutti_words tutti)"
        return
    fi
    # Which words are flags and their values? After those of run comes a program with arguments of its own.
    for ((i = 2; i < ${#joined[@]} - 1; i++)); do
        if [ -n "$flag" ]; then
            [ "${joined[i]}" = "=" ] || flag=""
        elif [[ ${joined[i]} == -* ]]; then
            flag=${joined[i]}
            [ "$(_tutti_values "$command" "$flag")" != none ] || flag=""
        elif [ "$command" = run ]; then
            if [ "${joined[i]##*/}" = tutti ]; then
                COMP_WORDS=("${joined[@]:i}")
                COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
                _tutti
            elif declare -F _command_offset >/dev/null; then
                _command_offset "$i"
            else
                _tutti_offer file
            fi
            return
        elif ((named == 0)) && [ -n "$(_tutti_flags "$command ${joined[i]}")" ]; then # data show
            command="$command ${joined[i]}"
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
    else
        read -ra operands < <(_tutti_operands "$command"; echo)
        last=$((${#operands[@]} - 1)) kind=""
        if ((named <= last)); then
            kind=${operands[named]}
        elif ((last >= 0)) && [[ ${operands[last]} == *... ]]; then
            kind=${operands[last]}
        fi
        case $kind in
        word*) _tutti_offer "$(_tutti_words "$command")" ;;
        spec) _tutti_offer_spec "$command" ;;
        *) _tutti_offer "${kind%...}" ;;
        esac
    fi
}

complete -F _tutti tutti
