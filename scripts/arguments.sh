# arguments.sh: sourced by the scripts: --help, and what is refused before anything is installed, built or started.

# help_asked SCRIPT ARGUMENTS...: with --help or -h among them prints the comment at the head of the script, and ends it.
help_asked() {
    script=$1 && shift
    for argument in "$@"; do
        case $argument in
        --help | -h) sed -n '1d; /^#/!q; s/^# \{0,1\}//p' "$script" && exit 0 ;;
        esac
    done
}

# train_arguments NAME ARGUMENTS...: of a script that passes them on to `tutti train`, whose keys they must be.
train_arguments() {
    name=$1 previous='' && shift
    for argument in "$@"; do
        case $argument in
        --[a-z]*)
            key=$(echo "${argument%%=*}" | sed 's/^--//; s/^no[-_]//' | tr - _)
            case $key in
            config | nproc_per_node) ;;
            *)
                grep -q "^KEY([A-Z]*, $key," src/train/config/config.def || {
                    echo "$name: tutti train has no key $argument; scripts/$name --help" >&2
                    exit 2
                }
                ;;
            esac
            ;;
        -n* | -[0-9]*) ;;
        *)
            case $previous in
            -*) ;; # its value
            *) echo "$name: unexpected argument $argument; keys of tutti train are given as --key value" >&2 && exit 2 ;;
            esac
            ;;
        esac
        previous=$argument
    done
}
