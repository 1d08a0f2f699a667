# Steps with a log, a time and one line in the summary each; sourced by tests/all and tests/long.
# Expects: top, logs, failed, summary, started.

step() { # NAME COMMAND…
    local name=$1 begin=$SECONDS r note
    shift
    printf '== %s\n' "$name"
    "$@" >"$logs/$name.log" 2>&1
    r=$?
    note=$(grep -E '^[0-9]+% tests passed|^as_user: ' "$logs/$name.log" | tail -1)
    if [ $r = 0 ]; then
        summary+=("$(printf 'ok    %-16s %4ds  %s' "$name" $((SECONDS - begin)) "$note")")
    else
        failed=1
        summary+=("$(printf 'FAIL  %-16s %4ds  %s' "$name" $((SECONDS - begin)) "$note")")
        tail -n "${TAIL:-120}" "$logs/$name.log"
        printf '== %s failed (exit %d); the whole log: %s\n' "$name" $r "$logs/$name.log"
    fi
}

finish() {
    printf '\n== summary (%ds, uid %s, %s)\n' $((SECONDS - started)) "$(id -u)" "$(uname -sr)"
    printf '%s\n' "${summary[@]}"
    if [ "$failed" = 0 ]; then echo "all passed"; else echo "FAILED"; fi
    exit "$failed"
}

# as_user LABEL…: the Python tests of the labels, as an ordinary uid that has no passwd entry and a
# home of its own. ctest itself would write into the build folder, so the programs are run directly;
# where the clone cannot be read by others (it lies in root's home) they run from a copy.
as_user() {
    local uid=20001 home source=$top bin=$top/build/debug/bin label script r=0 n=0 bad=0
    home=$(mktemp -d /tmp/tests-of-cordon-XXXXXX) || return 1
    chmod 755 "$home"
    mkdir "$home/home" "$home/tmp" "$home/record"
    if ! setpriv --reuid $uid --regid $uid --clear-groups test -r "$bin/cordond" -a -r "$source/tests/lib"; then
        mkdir "$home/source" "$home/bin"
        cp -r "$top"/{server,schema,tests,packaging,profiles,README.md} "$home/source/" 2>/dev/null
        cp "$bin"/* "$home/bin/"
        source=$home/source bin=$home/bin
        chmod -R a+rX "$home/source" "$home/bin"
    fi
    chown -R $uid:$uid "$home/home" "$home/tmp" "$home/record"
    for label; do
        for script in "$source/tests/$label"/test_*.py; do
            [ -e "$script" ] || continue
            n=$((n + 1))
            echo "-- $label/$(basename "$script" .py) as uid $uid"
            if ! (cd "$home/home" && setpriv --reuid $uid --regid $uid --clear-groups --inh-caps=-all \
                env -u XDG_RUNTIME_DIR HOME="$home/home" TMPDIR="$home/tmp" USER= LOGNAME= \
                CORDON_BIN="$bin" CORDON_SOURCE="$source" CORDON_SANITIZE= \
                CORDON_RECORD="$home/record" \
                CORDON_STOP_BIN="${CORDON_STOP_BIN:-}" PYTHONDONTWRITEBYTECODE=1 \
                timeout 600 /usr/bin/python3 "$script"); then
                echo "-- FAILED: $label/$(basename "$script" .py)"
                bad=$((bad + 1))
                r=1
            fi
        done
    done
    rm -rf "$home"
    [ $n -gt 0 ] || { echo "no test of $*"; return 1; }
    echo "as_user: $((n - bad)) of $n programs passed"
    return $r
}
