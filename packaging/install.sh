#!/bin/sh
# Installs kubeleet on this machine: sh install.sh [--from FOLDER|URL] [--prefix FOLDER]
#
# --from   where the files are that `make dist` wrote; by default beside this script, or where it was
#          published.
# --prefix takes the archive instead of the Debian package: FOLDER/bin/kubeleet and its units.
#
# Every file is compared with SHA256SUMS, and that with its signature if there is one and ALLOWED_SIGNERS
# names a file with the keys to trust (ssh-keygen(1), ALLOWED SIGNERS).
set -eu

published="@BASE_URL@"
from= prefix=
fail() {
  echo "install.sh: $*" >&2
  exit 1
}
while [ $# -gt 0 ]; do
  case $1 in
    --from) from=${2:?--from needs a folder or a URL} && shift 2 ;;
    --prefix) prefix=${2:?--prefix needs a folder} && shift 2 ;;
    *) fail "usage: sh install.sh [--from FOLDER|URL] [--prefix FOLDER]" ;;
  esac
done

here=$(cd "$(dirname "$0")" && pwd)
case $published in @*) published= ;; esac
[ -n "$from" ] || { [ -f "$here/SHA256SUMS" ] && from=$here; } || from=$published
[ -n "$from" ] || fail "there are no files beside this script: say where they are with --from FOLDER or --from URL"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
get() { # name
  case $from in
    http://* | https://*) curl -fsSL --retry 3 -o "$work/$1" "${from%/}/$1" ;;
    *) cp "$from/$1" "$work/$1" ;;
  esac
}

get SHA256SUMS || fail "$from has no SHA256SUMS: is it a folder of \`make dist\`?"
if [ -n "${ALLOWED_SIGNERS:-}" ]; then
  get SHA256SUMS.sig || fail "$from has no SHA256SUMS.sig, and ALLOWED_SIGNERS asks for it"
  signer=$(ssh-keygen -Y find-principals -f "$ALLOWED_SIGNERS" -s "$work/SHA256SUMS.sig") ||
    fail "SHA256SUMS.sig is of no key in $ALLOWED_SIGNERS"
  ssh-keygen -q -Y verify -f "$ALLOWED_SIGNERS" -I "$signer" -n kubeleet -s "$work/SHA256SUMS.sig" \
    <"$work/SHA256SUMS" || fail "SHA256SUMS is not what was signed"
fi

machine=$(uname -m)
if [ -z "$prefix" ] && command -v dpkg >/dev/null && [ "$(id -u)" = 0 ]; then
  wanted="_$(dpkg --print-architecture)\.deb"
else
  wanted="-$machine-linux\.tar\.gz"
fi
name=$(sed 's/^[0-9a-f]*  //' "$work/SHA256SUMS" | grep -e "$wanted\$") ||
  fail "$from has nothing for this machine, $machine"
get "$name"
(cd "$work" && grep "  $name\$" SHA256SUMS | sha256sum -c --quiet -) ||
  fail "$name is damaged: its SHA-256 is not the one in SHA256SUMS"

case $name in
  *.deb)
    if command -v apt-get >/dev/null; then
      # Not as the user _apt, who cannot read the folder.
      apt-get install -y --no-install-recommends --allow-downgrades -o APT::Sandbox::User=root "$work/$name"
    else
      dpkg -i "$work/$name"
    fi
    binary=/usr/bin/kubeleet
    ;;
  *)
    prefix=${prefix:-/usr/local}
    mkdir -p "$prefix"
    tar -xzf "$work/$name" -C "$prefix" --strip-components 1 --no-same-owner
    for unit in "$prefix"/lib/systemd/system/kubeleet-*; do
      sed "s|/usr/bin/kubeleet|$prefix/bin/kubeleet|; s|/usr/lib/kubeleet|$prefix/lib/kubeleet|" "$unit" >"$work/unit"
      cat "$work/unit" >"$unit"
    done
    binary=$prefix/bin/kubeleet
    ;;
esac
"$binary" version --client 2>/dev/null || "$binary" --version
echo "Installed: $binary. The first steps are in $(dirname "$(dirname "$binary")")/share/doc/kubeleet, or: kubeleet dev"
