#!/bin/bash
# catch2-prefix.sh PREFIX - Catch2 3 for Debian 12, unpacked under PREFIX.
# It comes from the backports suite of the machine's own archive; the machine's
# sources, lists and packages stay as they are. Then: cmake -DCMAKE_PREFIX_PATH=PREFIX/usr
# Prints the version. Does nothing where PREFIX has it already.
# MONOLAYER_APT_OPTS holds more options for apt, split at spaces.
set -euo pipefail
export LC_ALL=C
die() { printf 'catch2-prefix: error: %s\n' "$*" >&2; exit 1; }
[ $# -eq 1 ] || die 'usage: catch2-prefix.sh PREFIX'
prefix=$(realpath -m -- "$1")
if [ -s "$prefix/catch2.version" ]; then cat "$prefix/catch2.version"; exit 0; fi
for t in apt-get dpkg-deb; do command -v "$t" > /dev/null || die "'$t' is missing: this needs a Debian machine"; done
. /etc/os-release
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || die "$keyring is missing"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/catch2-prefix.XXXXXX"); trap 'rm -rf -- "$tmp"' EXIT
mirror=$(apt-get update --print-uris 2>/dev/null | sed -n "s#^'\(.*\)/dists/$VERSION_CODENAME/InRelease'.*#\1#p" | head -1)
[ -n "$mirror" ] || die "apt's configuration names no archive with $VERSION_CODENAME"
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/debs"; : > "$tmp/status"; chmod 755 "$tmp"
suite=$VERSION_CODENAME; [ "$suite" = bookworm ] && suite=bookworm-backports   # later releases carry Catch2 3 themselves
echo "deb [signed-by=$keyring] $mirror $suite main" > "$tmp/sources.list"
cat > "$tmp/apt.conf" <<EOF
Dir::State::Lists "$tmp/lists";
Dir::State::status "$tmp/status";
Dir::Cache "$tmp/cache";
Dir::Etc::sourcelist "$tmp/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "$(id -un)";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::Languages "none";
Acquire::Retries "3";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Default-Release;
EOF
read -r -a more_opts <<< "${MONOLAYER_APT_OPTS:-}"
papt() { apt-get -c "$tmp/apt.conf" ${more_opts[@]+"${more_opts[@]}"} -q "$@"; }
papt --error-on=any update > "$tmp/log" 2>&1 || { grep '^[EW]:' "$tmp/log" | sed 's#[a-z+]*://[^ ]*#(archive)#g' >&2; die "cannot read the lists of $suite"; }
( cd "$tmp/debs" && papt download libcatch2-dev ) > "$tmp/log" 2>&1 || die "cannot download libcatch2-dev from $suite"
deb=$(find "$tmp/debs" -name 'libcatch2-dev_*.deb'); v=$(dpkg-deb -f "$deb" Version)
dpkg --compare-versions "$v" ge 3 || die "catch2 there is $v, older than 3"
mkdir -p "$prefix"
dpkg-deb -x "$deb" "$prefix"
echo "$v" | tee "$prefix/catch2.version"
