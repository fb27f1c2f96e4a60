# SPDX-License-Identifier: MIT
# Packages of another Debian suite or architecture than the host's, without touching the host's apt:
# lists, status and cache of its own. Sourced after env.sh.

# The mirror that this host's own apt uses.
debian_mirror() {
  local mirror
  mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -1)
  [ -n "$mirror" ] || mirror=$(awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /:\/\//) { print $i; exit } }' /etc/apt/sources.list 2>/dev/null)
  [ -n "$mirror" ] || skip "no Debian mirror in /etc/apt"
  echo "$mirror"
}

# foreign_apt SUITE ARCH apt-get|apt-cache ARGUMENTS...
foreign_apt() {
  local release=$1 arch=$2 tool=$3 home="$cache/apt/$1-$2" mirror
  shift 3
  if [ ! -e "$home/sources.list" ]; then
    mirror=$(debian_mirror) || exit
    mkdir -p "$home/lists/partial" "$home/cache/archives/partial"
    : > "$home/status"
    echo "deb [arch=$arch signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" > "$home/sources.list"
  fi
  "$tool" -qq -o APT::Architecture="$arch" -o APT::Architectures::="$arch" \
    -o Dir::Etc::SourceList="$home/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
    -o Dir::State="$home" -o Dir::State::Lists="$home/lists" -o Dir::State::status="$home/status" \
    -o Dir::Cache="$home/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none \
    -o APT::Install-Recommends=false "$@"
}

# foreign_update SUITE ARCH: the package lists, once.
foreign_update() {
  once "apt-$1-$2" foreign_apt "$1" "$2" apt-get update -o APT::Update::Error-Mode=any ||
    skip "no package lists of $1 $2 to be had"
}

# The lists may be too old: they are fetched again next time.
foreign_missing() { # SUITE ARCH WORDS
  rm -f "$cache/stamps/apt-$1-$2"
  skip "$3"
}

# foreign_unpack SUITE ARCH DIRECTORY PACKAGE...: downloads them with what they depend on, unpacks.
foreign_unpack() {
  local release=$1 arch=$2 into=$3 deb
  shift 3
  foreign_update "$release" "$arch"
  foreign_apt "$release" "$arch" apt-get install --download-only -y "$@" >/dev/null ||
    foreign_missing "$release" "$arch" "packages of $release $arch not to be had: $*"
  mkdir -p "$into"
  for deb in "$cache/apt/$release-$arch"/cache/archives/*.deb; do
    dpkg-deb -x "$deb" "$into"
  done
}

# The same for single packages without what they depend on.
foreign_unpack_only() {
  local release=$1 arch=$2 into=$3 deb
  shift 3
  foreign_update "$release" "$arch"
  mkdir -p "$into/debs"
  (cd "$into/debs" && foreign_apt "$release" "$arch" apt-get download "$@" >/dev/null) ||
    foreign_missing "$release" "$arch" "packages of $release $arch not to be had: $*"
  for deb in "$into/debs"/*.deb; do
    dpkg-deb -x "$deb" "$into"
  done
}
