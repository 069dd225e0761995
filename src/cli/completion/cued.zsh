#compdef cued
_cued() {
    local -a lines values texts
    lines=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    lines=("${(@)lines:#}")
    if (( ! $#lines )); then
        _files
        return
    fi
    values=("${(@)lines%%$'\t'*}")
    texts=("${(@)lines/$'\t'/  -- }")
    compadd -d texts -a values
}
if [ "$funcstack[1]" = "_cued" ]; then
    _cued "$@"
else
    compdef _cued cued
fi
