#!/usr/bin/env bash
# run.sh CMAKE BUILD_DIR WORK_DIR GENERATOR CXX: installs BUILD_DIR into WORK_DIR and uses it from there.
set -euo pipefail
cmake=$1 build=$2 work=$3 generator=$4 cxx=$5
here=$(cd "$(dirname "$0")" && pwd)
rm -rf -- "$work"
mkdir -p "$work"
"$cmake" --install "$build" --prefix "$work/prefix" > "$work/install.log"

configure() { # NAME OPTIONS...
  local name=$1
  shift
  "$cmake" -S "$here/consumer" -B "$work/$name" -G "$generator" "-DCMAKE_CXX_COMPILER=$cxx" \
    "-DCMAKE_PREFIX_PATH=$work/prefix" "$@" > "$work/$name.log" 2>&1
}
fail() { printf 'package: %s\n' "$1"; sed 's/^/  /' "$work/$2.log"; exit 1; }

configure plain -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON || fail 'find_package without Boost does not work' plain
"$cmake" --build "$work/plain" >> "$work/plain.log" 2>&1 || fail 'the consumer does not build' plain
"$work/plain/consumer" || fail 'the consumer does not run' plain
configure sim -DWITH_SIM=ON || fail 'the component sim is not found' sim
"$cmake" --build "$work/sim" >> "$work/sim.log" 2>&1 || fail 'the consumer with sim does not build' sim
"$work/sim/consumer" || fail 'the consumer with sim does not run' sim
if configure refused -DWITH_SIM=ON -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON; then
  fail 'the component sim was found without Boost' refused
fi
grep -q 'needs Boost.Context' "$work/refused.log" || fail 'the refusal does not say what is missing' refused
echo 'package: installed, found with and without Boost, linked and run'
