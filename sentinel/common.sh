# Shared by the scripts here. For any POSIX shell: the official image has Debian's or Alpine's, ours has
# busybox. shellcheck shell=sh

umask 077

say() { echo "$(basename "$0"): $*" >&2; }

# The password of a user. Alphanumeric only: it is written into URLs and configuration files unescaped.
password() {
  text=$(cat "/run/secrets/$1") || exit 1
  case "$text" in
    '' | *[!A-Za-z0-9]*)
      say "the password in the secret '$1' must be alphanumeric"
      exit 1
      ;;
  esac
  printf %s "$text"
}

# The users file, from its template: comments out, passwords in, as digests.
users() {
  script='/^#/d; /^$/d'
  for user in kubeleet sentinel replication admin; do
    grep -q "@$user@" "$1" || continue
    text=$(password "$user") || exit 1
    digest=$(printf %s "$text" | sha256sum | cut -d ' ' -f 1)
    script="$script; s/@$user@/#$digest/"
  done
  sed "$script" "$1"
}

# redis-cli as a user, with a time limit: a machine that is gone does not answer at all.
cli() {
  user=$1
  shift
  text=$(password "$user") || exit 1
  REDISCLI_AUTH=$text timeout 2 redis-cli --no-auth-warning --user "$user" "$@"
}

# The master's address according to one Sentinel; nothing when it does not answer.
master_by() {
  cli sentinel -h "$1" -p 26379 SENTINEL GET-MASTER-ADDR-BY-NAME mymaster 2>/dev/null |
    sed -n '1{/^[0-9][0-9.]*$/p;}'
}

# The master's address according to at least two of the three Sentinels: a Sentinel that was cut off names an
# old master.
master() {
  for sentinel in $SENTINELS; do
    master_by "$sentinel"
  done | sort | uniq -c | while read -r votes address; do
    [ "$votes" -lt 2 ] || echo "$address"
  done
}

# What a Redis says that it is: its own address if it is a master, that of its master if it is a replica, and
# nothing when it does not answer.
master_of() {
  cli sentinel -h "$1" -p 6379 ROLE 2>/dev/null | {
    read -r role || exit 0
    read -r address || exit 0
    case "$role" in
      master) echo "$1" ;;
      slave) echo "$address" ;;
    esac
  }
}

# The master according to the Redis servers themselves: the one that most of them name. Nothing when none
# answers, as at the very first start.
master_by_role() {
  for redis in ${REDISES:-$FIRST_MASTER}; do
    master_of "$redis"
  done | sort | uniq -c | sort -rn | sed -n '1s/^ *[0-9]* *//p'
}

# One field of what this Sentinel knows of the master.
watched() { cli sentinel -h 127.0.0.1 -p 26379 SENTINEL MASTER mymaster | sed -n "/^$1\$/{n;p;}"; }
