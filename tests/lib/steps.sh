# Steps with a log, a time and one line in the summary each; sourced by tests/all and tests/long.
# Expects: top, logs, jobs, failed, summary, started.

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

# as_user BUILD LABEL…: the Python tests of the labels, with the programs of build/BUILD, as an ordinary uid that has no passwd entry and a
# home of its own. ctest itself would write into the build folder, so the programs are run directly;
# where the clone cannot be read by others (it lies in root's home) they run from a copy. Two at
# once, but for `wall`, whose programs look at what is left in /tmp.
as_user() {
    local uid=20001 source=$top bin=$top/build/$1/bin plain=$top/build/debug/bin sanitize= base label at_once last n bad
    [ "$1" != asan ] || sanitize=address,undefined
    shift
    base=$(mktemp -d /tmp/tests-of-cordon-XXXXXX) || return 1
    chmod 755 "$base"
    mkdir "$base/results" "$base/record"
    chown "$uid:$uid" "$base/record"
    if ! setpriv --reuid $uid --regid $uid --clear-groups test -r "$bin/cordond" -a -r "$source/tests/lib"; then
        mkdir "$base/source" "$base/bin"
        cp -r "$top"/{server,schema,tests,packaging,profiles,README.md} "$base/source/" 2>/dev/null
        cp -r "$bin"/* "$base/bin/"
        [ -z "$sanitize" ] || cp -r "$plain" "$base/plain"
        chmod -R a+rX "$base"/{source,bin,plain} 2>/dev/null
        source=$base/source bin=$base/bin plain=$base/plain
    fi
    export uid source bin plain base sanitize
    export -f as_user_one
    for label; do
        at_once=$jobs
        [ "$label" != wall ] || at_once=1
        # test_zz_*.py judge what the others of their label recorded.
        for last in '' zz_; do
            find "$source/tests/$label" -maxdepth 1 -name "test_${last:-[!z]}*.py" | sort |
                xargs -r -P "$at_once" -I FILE bash -c 'as_user_one FILE'
        done
    done
    n=$(cat "$base/results/"* | wc -l)
    bad=$(cat "$base/results/"* | grep -cv '^0$')
    rm -rf "$base"
    [ "$n" -gt 0 ] || { echo "no test of $*"; return 1; }
    echo "as_user: $((n - bad)) of $n programs passed"
    [ "$bad" = 0 ]
}

as_user_one() { # FILE
    local name home log r bin=$bin sanitize=$sanitize
    name=$(basename "$(dirname "$1")")/$(basename "$1" .py)
    # A limit of address space, the ordinary user's, leaves a sanitizer no room.
    if [ "$sanitize" ] && [ "$name" = api/test_limits ]; then bin=$plain sanitize=; fi
    home=$(mktemp -d "$base/XXXX") # short: sockets lie in it (unix(7): 107 bytes)
    chmod 755 "$home"
    log=$base/${name//\//-}-log
    mkdir -p "$home/home" "$home/tmp"
    chown -R "$uid:$uid" "$home/home" "$home/tmp"
    (cd "$home/home" && setpriv --reuid "$uid" --regid "$uid" --clear-groups --inh-caps=-all \
        env -u XDG_RUNTIME_DIR HOME="$home/home" TMPDIR="$home/tmp" USER= LOGNAME= \
        CORDON_BIN="$bin" CORDON_SOURCE="$source" CORDON_SANITIZE="$sanitize" CORDON_RECORD="$base/record" \
        PYTHONDONTWRITEBYTECODE=1 \
        timeout 600 /usr/bin/python3 "$1") >"$log" 2>&1
    r=$?
    echo $r >"$base/results/${name//\//-}"
    echo "-- $name as uid $uid: $([ $r = 0 ] && echo passed || echo "FAILED ($r)")"
    if [ $r != 0 ]; then cat "$log"; else tail -3 "$log"; fi
    rm -rf "$home"
}
