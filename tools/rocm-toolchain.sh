#!/bin/bash
# rocm-toolchain.sh - put a HIP compiler for gfx950/gfx942 under one prefix.
#
#   rocm-toolchain.sh [options] PREFIX
#
# Unpacks clang, lld, the LLVM tools, the ROCm device libraries, the HIP
# headers and runtime, rocPRIM and hipCUB from Debian's own archive into PREFIX
# and makes the programs run there with their own C library. Nothing is
# installed on the machine: its packages, its libc and its apt lists stay as
# they are. Root is not needed.
#
# The archive's address is read from the machine's own apt configuration, and
# apt itself checks the signed lists and every package's hash.
#
# On standard output, and nothing else there, come shell assignments:
#
#   out=$(tools/rocm-toolchain.sh /opt/rocm-tc) && eval "$out"
#   "$HIPCXX" -x hip --offload-arch=gfx950 -std=c++20 -O3 -c kernel.hip -o kernel.o
#   "$HIPCXX" --hip-link kernel.o -o program
#
# HIPCXX is the compiler, ROCM_PATH the ROCm root, ROCM_LLVM_BIN the folder with
# llvm-objdump, llvm-readelf, llvm-mca and the rest, ROCM_TOOLCHAIN says which
# kind was found: 'system' or 'prefix'.
#
# Options:
#   --force          build PREFIX again even if it is complete
#   --ignore-system  do not use a ROCm that is on PATH already
#   --arch ARCH      the GPU the compiler must be able to build for
#                    (may be repeated; default gfx950 and gfx942)
#   --headers WHICH  C and C++ headers for host code: 'host' (the machine's g++),
#                    'bundled' (unpacked under PREFIX/host), 'auto' (default: host
#                    where a usable g++ is installed, else bundled)
#
# Environment:
#   MONOLAYER_APT_OPTS       more options for apt, split at spaces, for example
#                            -oAcquire::Check-Valid-Until=false
#   ROCM_TOOLCHAIN_MIRROR    the archive's address, in place of the machine's
#
# The prefix cannot be moved: its programs name their loader by full path.

[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -euo pipefail
export LC_ALL=C

VERSION=1
MIN_CLANG=20   # gfx950 came with LLVM 20
MIN_HIP=7      # rocPRIM 6 stops at gfx950 with an #error
MARK=.rocm-toolchain

say() { printf 'rocm-toolchain: [%3ds] %s\n' "$SECONDS" "$*" >&2; }
die() { printf 'rocm-toolchain: error: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '2,/^$/{s/^# \{0,1\}//;p}' "$0" >&2; }

force=no system=yes headers=auto prefix='' archs=()
while [ $# -gt 0 ]; do
  case $1 in
    --force) force=yes ;;
    --ignore-system) system=no ;;
    --arch) [ $# -ge 2 ] || die '--arch needs a value'; archs+=("$2"); shift ;;
    --headers) [ $# -ge 2 ] || die '--headers needs a value'; headers=$2; shift ;;
    -h|--help) usage; exit 0 ;;
    -*) usage; die "unknown option $1" ;;
    *) [ -z "$prefix" ] || die 'more than one prefix was given'; prefix=$1 ;;
  esac
  shift
done
[ -n "$prefix" ] || { usage; die 'no prefix was given'; }
case $headers in auto|host|bundled) ;; *) die "--headers takes auto, host or bundled, not '$headers'" ;; esac
[ ${#archs[@]} -gt 0 ] || archs=(gfx950 gfx942)
prefix=$(realpath -m -- "$prefix")
case $prefix in
  /usr/local/?*) ;;
  /|/usr|/usr/*|/bin|/sbin|/lib*|/etc*|/boot*|/dev*|/proc*|/sys*) die "refusing to use $prefix as the prefix" ;;
esac
case $prefix in
  *[[:space:]\"\'\\\$\`]*) die 'the prefix may hold no space, quote, dollar or backslash' ;;
esac

tmp=$(mktemp -d "${TMPDIR:-/tmp}/rocm-toolchain.XXXXXX")
trap 'rm -rf -- "$tmp"' EXIT
trap 'printf "rocm-toolchain: error: line %s: %s\n" "$LINENO" "$BASH_COMMAND" >&2' ERR

# Can COMPILER build device code for every wanted GPU? What it says goes to $tmp/probe.log.
builds_device_code() {
  local cxx=$1 a; shift
  cat > "$tmp/probe.hip" <<'EOF'
#include <hip/hip_runtime.h>
__global__ void probe(float* p) { p[threadIdx.x] = expf(p[threadIdx.x]); }
EOF
  for a in "${archs[@]}"; do
    "$cxx" "$@" -x hip --offload-arch="$a" --offload-device-only -O1 -c \
      "$tmp/probe.hip" -o "$tmp/probe.o" > "$tmp/probe.log" 2>&1 || return 1
    [ -s "$tmp/probe.o" ] || return 1
  done
}

print_result() { # kind compiler rocm_root llvm_bin
  say "$1 toolchain: $("$2" --version 2>/dev/null | grep -m1 -i 'clang version' || echo "$2")"
  say "use: $2 -x hip --offload-arch=${archs[0]} -std=c++20 -O3 -c FILE -o FILE.o"
  say "     $2 --hip-link FILE.o -o PROGRAM"
  printf 'ROCM_TOOLCHAIN=%q\nHIPCXX=%q\nROCM_PATH=%q\nROCM_LLVM_BIN=%q\n' "$1" "$2" "$3" "$4"
  printf 'export ROCM_TOOLCHAIN HIPCXX ROCM_PATH ROCM_LLVM_BIN\n'
}

# ---- 1. a ROCm that is there already ----------------------------------------
if [ "$system" = yes ]; then
  for c in amdclang++ hipcc /opt/rocm/bin/amdclang++; do
    p=$(command -v "$c" || true)
    [ -n "$p" ] || continue
    case $(realpath -- "$p") in "$prefix"/*) continue ;; esac
    if builds_device_code "$p"; then
      root='' llvm=''
      for d in "$(hipconfig --rocmpath 2>/dev/null || true)" "${ROCM_PATH:-}" "$(dirname "$(dirname "$p")")" /opt/rocm; do
        if [ -z "$root" ] && [ -n "$d" ] && [ -e "$d/include/hip/hip_runtime.h" ]; then root=$d; fi
      done
      for d in "$root/llvm/bin" "$root/lib/llvm/bin" "$(dirname "$(realpath -- "$p")")"; do
        if [ -z "$llvm" ] && [ -x "$d/llvm-objdump" ]; then llvm=$d; fi
      done
      print_result system "$p" "$root" "$llvm"
      exit 0
    fi
    say "$p is there but does not build for ${archs[*]}; going on"
  done
fi

# ---- 2. this prefix, if it is complete --------------------------------------
libdir=$prefix/usr/lib/x86_64-linux-gnu
finish() {
  local llvm; llvm=$(readlink -f "$prefix/usr/llvm")
  print_result prefix "$llvm/bin/clang++" "$prefix/usr" "$llvm/bin"
  exit 0
}

if [ -e "$prefix" ]; then
  [ -d "$prefix" ] || die "$prefix is not a directory"
  [ -e "$prefix/$MARK" ] || [ -z "$(ls -A -- "$prefix")" ] ||
    die "$prefix is not empty and was not made by this script"
fi
mkdir -p -- "$prefix" || die "cannot make $prefix"
touch -- "$prefix/$MARK" || die "cannot write to $prefix"
exec 9>"$prefix/$MARK.lock"
flock -w 1800 9 || die "another run holds $prefix"

wanted="version=$VERSION prefix=$prefix headers=$headers"
if [ "$force" = no ] && [ "$(cat "$prefix/$MARK" 2>/dev/null)" = "$wanted" ]; then
  if [ -x "$prefix/usr/llvm/bin/clang++" ] && builds_device_code "$prefix/usr/llvm/bin/clang++"; then
    say "$prefix is complete already"
    finish
  fi
  say "$prefix looked complete but does not compile; building it again"
fi

# ---- 3. what this machine must have -----------------------------------------
for t in apt-get apt-cache dpkg dpkg-deb tar flock awk sed xargs; do
  command -v "$t" > /dev/null || die "'$t' is missing: this needs a Debian machine"
done
[ "$(dpkg --print-architecture)" = amd64 ] || die 'this needs an amd64 machine'
free_kb=$(df -Pk -- "$prefix" | awk 'NR==2 {print $4}')
[ "$free_kb" -ge 1200000 ] || die "$prefix has $((free_kb / 1024)) MiB free; 1200 MiB are needed"

host_gcc=$(for d in /usr/lib/gcc/x86_64-linux-gnu/*/; do
             v=$(basename "$d")
             if [ -d "/usr/include/c++/$v" ] && [ -e "$d/crtbegin.o" ]; then echo "$v"; fi
           done | sort -n | tail -1)
have_host=no
if [ "${host_gcc%%.*}" -ge 11 ] 2>/dev/null && [ -e /usr/include/stdio.h ]; then have_host=yes; fi
case $headers in
  auto) if [ $have_host = yes ]; then use=host; else use=bundled; fi ;;
  host) [ $have_host = yes ] || die 'no g++ 11 or newer is installed: apt-get install g++, or use --headers bundled'; use=host ;;
  bundled) use=bundled ;;
esac

# ---- 4. a private apt, with the machine's own archive ------------------------
apt_conf=$tmp/apt.conf
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/debs"
: > "$tmp/status"
chmod 755 "$tmp"
cat > "$apt_conf" <<EOF
Dir::State::Lists "$tmp/lists";
Dir::State::status "$tmp/status";
Dir::Cache "$tmp/cache";
Dir::Etc::sourcelist "$tmp/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "$tmp/preferences";
Dir::Etc::preferencesparts "/dev/null";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "$(id -un)";
APT::Install-Recommends "false";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::Languages "none";
Acquire::Retries "3";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Default-Release;
EOF
read -r -a more_opts <<< "${MONOLAYER_APT_OPTS:-}"
papt() { local tool=$1; shift; "$tool" -c "$apt_conf" ${more_opts[@]+"${more_opts[@]}"} "$@"; }

find_mirrors() { # every address in the machine's apt configuration that serves a Debian release
  if [ -n "${ROCM_TOOLCHAIN_MIRROR:-}" ]; then printf '%s\n' "${ROCM_TOOLCHAIN_MIRROR%/}"; return; fi
  # --print-uris downloads nothing and needs no lists, so a fresh machine can answer it.
  apt-get update --print-uris 2>/dev/null |
    sed -n "s#^'\(.*\)/dists/\([a-z][a-z0-9]*\)/InRelease'.*#\1#p" | awk '!seen[$0]++'
}
mapfile -t mirrors < <(find_mirrors)
[ ${#mirrors[@]} -gt 0 ] || die "no archive in this machine's apt configuration (apt-get update --print-uris names none)"

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || die "$keyring is missing: apt-get install debian-archive-keyring"

rocm_sources='src:rocm-llvm src:rocm-hipamd src:rocr-runtime src:rocprim src:hipcub src:rocthrust'

# Reads the lists of the suites and picks what to take. The first suite is the
# base; the ROCm packages come from the suite named by the first argument.
#   try_suites ROCM_SUITE BASE [OTHER...]
try_suites() {
  local rocm=$1 base=$2 s r n p v; shift
  say "trying ROCm from $rocm on top of $base"
  for s in "$@"; do printf 'deb [arch=amd64 signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$s"; done > "$tmp/sources.list"
  {
    # trixie is named by codename, sid and experimental by the names they also have as suites
    for s in "$@"; do
      case $s in
        sid) r=a=unstable ;; experimental) r=a=experimental ;; *) r=n=$s ;;
      esac
      [ "$s" = "$rocm" ] && printf 'Package: %s\nPin: release %s\nPin-Priority: 600\n\n' "$rocm_sources" "$r"
      if [ "$s" = "$base" ]; then v=500; else v=1; fi
      printf 'Package: *\nPin: release %s\nPin-Priority: %s\n\n' "$r" "$v"
    done
  } > "$tmp/preferences"
  if ! papt apt-get -q --error-on=any update > "$tmp/update.log" 2>&1; then
    sed -n '/^[EW]:/p' "$tmp/update.log" | sed 's#[a-z+]*://[^ ]*#(archive)#g' | head -5 >&2
    if grep -q 'is expired\|is not valid yet' "$tmp/update.log"; then
      say 'the list is older than it says it may be; MONOLAYER_APT_OPTS=-oAcquire::Check-Valid-Until=false takes it all the same'
    fi
    return 1
  fi
  for n in $(papt apt-cache pkgnames rocm-device-libs- | sed -n 's/^rocm-device-libs-\([0-9]*\)$/\1/p' | sort -rn); do
    [ "$n" -ge "$MIN_CLANG" ] || break
    if papt apt-get -q -s -y install "clang-$n" "clang-tools-$n" "lld-$n" "llvm-$n" \
         "libclang-rt-$n-dev" "rocm-device-libs-$n" libamdhip64-dev librocprim-dev libhipcub-dev patchelf \
         > "$tmp/plan.log" 2>&1; then
      awk '$1 == "Inst" {v = $3; sub(/^\(/, "", v); print $2 "=" v}' "$tmp/plan.log" | sort > "$tmp/all"
      for p in libamdhip64-dev librocprim-dev; do
        v=$(sed -n "s/^$p=//p" "$tmp/all")
        if dpkg --compare-versions "$v" lt "$MIN_HIP"; then say "$p there is $v, older than $MIN_HIP"; continue 2; fi
      done
      llvm_version=$n
      return 0
    fi
  done
  sed -n '/unmet dependencies/,$p' "$tmp/plan.log" 2>/dev/null | head -8 >&2
  return 1
}

llvm_version=
for mirror in "${mirrors[@]}"; do
  try_suites experimental trixie experimental && break
  try_suites sid trixie sid && break
  try_suites experimental sid experimental && break
  try_suites sid sid && break
done
[ -n "$llvm_version" ] || die "none of this machine's archives gives clang >= $MIN_CLANG with its ROCm device libraries, and HIP and rocPRIM >= $MIN_HIP"

# ---- 5. download ------------------------------------------------------------
# Packages that the tools never open. The C and C++ development packages are
# taken only where the machine has none of its own.
dev='libc6-dev|linux-libc-dev|libstdc\+\+-[0-9]+-dev|libgcc-[0-9]+-dev|libcrypt-dev'
skip='libc-dev-bin|rpcsvc-proto|binutils.*|libbinutils|libctf.*|libgprofng.*|libsframe.*|libjansson.*|libobjc.*|libgc1|lib(asan|tsan|hwasan|lsan|ubsan|itm|gomp|quadmath|atomic)[0-9]*|libclang1-[0-9]+|llvm-[0-9]+-(linker-tools|runtime)|gcc-[0-9]+-base|lib32.*|libc6-i386|openssl-provider-legacy|python3.*|libpython3.*|media-types|libexpat1|libreadline.*|readline-common|libsqlite3.*|libncursesw6|tzdata|netbase|ca-certificates|debconf|libbz2.*|libuuid1|dpkg|libacl1|libattr1|libselinux1|libpcre2.*|perl.*|libperl.*'
grep -Ev "^($skip)=" "$tmp/all" | grep -Ev "^($dev)=" > "$tmp/take"
if [ "$use" = bundled ]; then grep -E "^($dev)=" "$tmp/all" >> "$tmp/take"; fi
[ -s "$tmp/take" ] || die 'apt planned no package'
mapfile -t take < "$tmp/take"
say "downloading ${#take[@]} packages (clang $llvm_version, HIP $(sed -n 's/^libamdhip64-dev=//p' "$tmp/take"))"
( cd "$tmp/debs" && papt apt-get -q download "${take[@]}" ) > "$tmp/download.log" 2>&1 || {
  sed -n '/^[EW]:/p' "$tmp/download.log" | sed 's#[a-z+]*://[^ ]*#(archive)#g' | head -5 >&2
  die 'the download failed (see above)'
}
count=$(find "$tmp/debs" -name '*.deb' | wc -l)
[ "$count" -eq ${#take[@]} ] || die "apt brought $count packages of ${#take[@]}"
say "downloaded $(du -sm "$tmp/debs" | cut -f1) MiB"

# ---- 6. unpack --------------------------------------------------------------
echo incomplete > "$prefix/$MARK"
rm -rf -- "${prefix:?}/usr" "${prefix:?}/host" "${prefix:?}/bin" "$prefix/packages.txt"
mkdir -p "$prefix/usr" "$prefix/host/usr"
llvm=$prefix/usr/lib/llvm-$llvm_version
unpack() { # DEB DIR
  dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --no-same-owner --no-same-permissions \
    --exclude='./usr/share/doc' --exclude='./usr/share/man' --exclude='./usr/share/locale' \
    --exclude='./usr/share/lintian' --exclude='./usr/share/info' --exclude='./etc' \
    --exclude='*/libclang_rt.[!b]*' --exclude='*-i386.[ao]' --exclude='*/gconv' --exclude='*/perf' --exclude='./var' \
    --exclude='*/bin/c-index-test' --exclude='*/bin/clang-tblgen' --exclude='*/bin/llvm-exegesis*' \
    --exclude='*/bin/bugpoint*' --exclude='*/bin/llvm-tblgen*' --exclude='*/bin/lli*' \
    --exclude='*/bin/llvm-pdbutil*' --exclude='*/bin/llvm-jitlink*' --exclude='*/bin/llvm-c-test*' \
    --exclude='*/bin/llvm-reduce*'
}
export -f unpack
find "$tmp/debs" -name '*.deb' -printf '%s %p\n' | sort -rn | cut -d' ' -f2- > "$tmp/order"
: > "$tmp/main"; : > "$tmp/dev"
while read -r f; do
  if basename "$f" | grep -qE "^($dev)_"; then echo "$f" >> "$tmp/dev"; else echo "$f" >> "$tmp/main"; fi
done < "$tmp/order"
xargs -r -P "$(nproc)" -I{} bash -c 'set -e -o pipefail; unpack "$1" "$2"' _ {} "$prefix" < "$tmp/main" ||
  die 'unpacking failed'
if [ "$use" = bundled ]; then
  xargs -r -I{} bash -c 'set -e -o pipefail; unpack "$1" "$2"' _ {} "$prefix/host" < "$tmp/dev" || die 'unpacking failed'
  # The libraries that these headers are linked with are those unpacked above.
  for f in libc.so.6 libm.so.6 libmvec.so.1 libdl.so.2 libpthread.so.0 librt.so.1 libgcc_s.so.1 libstdc++.so.6 ld-linux-x86-64.so.2; do
    if [ -e "$libdir/$f" ]; then ln -sfn "../../../../usr/lib/x86_64-linux-gnu/$f" "$prefix/host/usr/lib/x86_64-linux-gnu/$f"; fi
  done
  mkdir -p "$prefix/host/usr/lib64"
  ln -sfn ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 "$prefix/host/usr/lib64/ld-linux-x86-64.so.2"
  ln -sfn usr/lib "$prefix/host/lib"; ln -sfn usr/lib64 "$prefix/host/lib64"
fi
cp "$tmp/take" "$prefix/packages.txt"
say 'unpacked'

# ---- 7. make the programs run here ------------------------------------------
loader=$libdir/ld-linux-x86-64.so.2
[ -x "$loader" ] || die 'the unpacked C library has no loader where it was expected'
patchelf() { "$loader" --library-path "$libdir" "$prefix/usr/bin/patchelf" "$@"; }
patchelf --version > /dev/null 2>&1 || die 'the unpacked patchelf does not run'
is_elf() { local m; IFS= read -r -N 4 m < "$1" && [ "$m" = $'\x7fELF' ]; }
# Programs find their loader and libraries by full path. The libraries' own
# RUNPATH goes, since it would switch the programs' RPATH off for what they need.
patch_one() { # LOADER LIBDIR PATCHELF FILE
  case $4 in
    */bin/*) "$1" --library-path "$2" "$3" --set-interpreter "$1" --force-rpath --set-rpath "$2" "$4" ;;
    *)       "$1" --library-path "$2" "$3" --remove-rpath "$4" ;;
  esac
}
export -f patch_one
for f in "$llvm"/bin/* "$libdir"/libLLVM*.so* "$libdir"/libclang-cpp*.so* "$libdir"/libamd*.so* "$libdir"/libhsa*.so* "$libdir"/libhiprtc*.so*; do
  if [ -f "$f" ] && [ ! -L "$f" ] && is_elf "$f"; then printf '%s\n' "$f"; fi
done > "$tmp/elf"
xargs -r -P "$(nproc)" -I{} bash -c 'patch_one "$@"' _ "$loader" "$libdir" "$prefix/usr/bin/patchelf" {} < "$tmp/elf" ||
  die 'patchelf failed (see above)'
say 'patched'

# ---- 8. a ROCm root and the compiler's own defaults --------------------------
bitcode=$(find "$llvm/lib" -type d -path '*/amdgcn/bitcode' | head -1)
[ -n "$bitcode" ] || die 'the device libraries are not where they were expected'
ln -sfn "${bitcode%/bitcode}" "$prefix/usr/amdgcn"
ln -sfn "lib/llvm-$llvm_version" "$prefix/usr/llvm"
ln -sfn "usr/llvm/bin" "$prefix/bin"
for f in libamdhip64.so libhiprtc.so libhsa-runtime64.so libamd_comgr.so; do # for -L$ROCM_PATH/lib and --hip-link
  if [ -e "$libdir/$f" ]; then ln -sfn "x86_64-linux-gnu/$f" "$prefix/usr/lib/$f"; fi
done
# CMake looks for the HIP language only in ROOT/lib/cmake, Debian has it one folder further down.
mkdir -p "$prefix/usr/lib/cmake/hip-lang"
for f in hip-lang-config hip-lang-config-version; do
  echo "include(\"\${CMAKE_CURRENT_LIST_DIR}/../../x86_64-linux-gnu/cmake/hip-lang/$f.cmake\")" \
    > "$prefix/usr/lib/cmake/hip-lang/$f.cmake"
done
# clang reads these beside itself, so plain 'clang++ -x hip' needs no wrapper.
# A program that links libamdhip64 must start with the C library that it wants.
{
  echo "--rocm-path=$prefix/usr"
  echo '-fuse-ld=lld'
  echo "-Wl,--dynamic-linker=$loader"
  echo '-Wl,--disable-new-dtags'
  echo "-Wl,-rpath,$libdir"
  if [ "$use" = bundled ]; then echo "--sysroot=$prefix/host"; fi
} > "$llvm/bin/clang++.cfg"
cp "$llvm/bin/clang++.cfg" "$llvm/bin/clang.cfg"

# ---- 9. prove it ------------------------------------------------------------
builds_device_code "$llvm/bin/clang++" || { head -20 "$tmp/probe.log" >&2; die 'the new compiler does not build device code (see above)'; }
cat > "$tmp/host.hip" <<'EOF'
#include <cstring>
#include <hip/hip_runtime.h>
#include <rocprim/block/block_scan.hpp>
int main() { int n = 0; hipError_t e = hipGetDeviceCount(&n); return e == hipSuccess || e == hipErrorNoDevice ? 0 : 1; }
EOF
"$llvm/bin/clang++" -std=c++20 -x hip --offload-arch="${archs[0]}" --hip-link "$tmp/host.hip" -o "$tmp/host" > "$tmp/host.log" 2>&1 ||
  { head -20 "$tmp/host.log" >&2; die 'the new compiler does not link a HIP program (see above)'; }
"$tmp/host" > "$tmp/host.log" 2>&1 || { head -20 "$tmp/host.log" >&2; die 'a linked HIP program does not start'; }

for t in llvm-objdump llvm-readelf llvm-mc llvm-mca clang-offload-bundler; do
  "$llvm/bin/$t" --version > "$tmp/tool.log" 2>&1 || { head -5 "$tmp/tool.log" >&2; die "$t does not start"; }
done

echo "$wanted" > "$prefix/$MARK"
say "$prefix is ready ($(du -sm "$prefix" | cut -f1) MiB, packages listed in $prefix/packages.txt)"
finish
