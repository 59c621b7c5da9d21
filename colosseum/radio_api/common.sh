# shellcheck shell=bash disable=SC2034  # what is set here is used there
# What the scripts of this folder share; sourced, never run.
#
# The state of a node is a few files in $RUN, each written by one script only, so that none can overwrite another's:
#   booting, ready, failed   boot.sh, when the container starts (failed holds the reason)
#   started                  start.sh
#   stopping, finished       stop.sh and finish.sh
#   NAME.waits               run.sh, what the program NAME waits for before it begins
#   NAME.pid                 where there is no systemd: its process
# /run is empty after a boot, and so is the state.

set -u
API=/root/radio_api # Colosseum's, for scripts and for what it pushes into the container
CONFIG=$API/radio.conf
RUN=/run/twinlink
LOGS=/logs # Colosseum keeps what is here
BIN=/opt/twinlink/bin
GNB=/opt/oai-gnb/bin/nr-softmodem # in the image with a gNB
GNB_CONFIG=/root/config/oai-gnb.conf
GNB_OPTIONS=/root/config/oai-gnb.options # one line
DRAIN_S=3 # a twin stops so long after the others: both are told to at the same time

declare -A HTTP=([exporter]=9464 [replay]=9465 [ran-emulator]=9466) # ports on loopback

no_arguments() {
  [ $# -eq 0 ] && return
  echo "$0: no arguments are taken, not even: $*" >&2
  exit 64
}

mark() { mkdir -p "$RUN" && printf '%s\n' "${2:-}" >"$RUN/$1"; }

marked() { [ -e "$RUN/$1" ]; }

note() { # for the reader of /logs afterwards
  mkdir -p "$LOGS"
  printf '%s %s\n' "$(date --utc +%FT%T.%3NZ)" "$*" >>"$LOGS/radio_api.txt"
}

keep_version() { # of a file that Colosseum replaces
  note "$1 has been replaced"
  if [ -e "$API/$1" ]; then cp "$API/$1" "$LOGS/${1%.json}-$(date +%s.%N).json"; fi
}

has_table() { grep -qsE "^[[:space:]]*\[[[:space:]]*$1[[:space:]]*\]" "$CONFIG"; }

programs() { # of this node: those that radio.conf has a table for, and a gNB, in the order in which they are started
  local name
  for name in replay exporter ran-emulator; do
    if has_table "$name"; then echo "$name"; fi
  done
  # The image's gNB, beside an exporter that has no other.
  if [ -x "$GNB" ] && has_table exporter && ! has_table ran-emulator; then echo gnb; fi
}

command_of() { # the command of a program, into the array COMMAND
  local options=()
  if [ "$1" = gnb ]; then
    if [ -e "$GNB_OPTIONS" ]; then read -r -a options <"$GNB_OPTIONS"; fi
    COMMAND=("$GNB" -O "$GNB_CONFIG" "${options[@]}")
  else
    COMMAND=("$BIN/twinlink-$1" --config "$CONFIG" --http "127.0.0.1:${HTTP[$1]}" --log "$LOGS/$1.jsonl")
  fi
}

# Programs are systemd's where it runs, as on an SRN. Elsewhere, as in the tests, they are processes of their own.
has_systemd() { [ -d /run/systemd/system ]; }

start_program() {
  if has_systemd; then
    systemctl start "twinlink@$1.service"
  else
    setsid "$API/run.sh" "$1" </dev/null >>"$LOGS/$1.txt" 2>&1 &
    mark "$1.pid" $!
  fi
}

runs() {
  if has_systemd; then
    systemctl --quiet is-active "twinlink@$1.service"
  else
    kill -0 "$(cat "$RUN/$1.pid" 2>/dev/null)" 2>/dev/null
  fi
}

stop_program() { # returns when it has ended
  local tries
  if has_systemd; then
    systemctl stop "twinlink@$1.service"
    return
  fi
  for ((tries = 0; tries < 600; tries++)); do
    runs "$1" || return 0
    ((tries > 0)) || kill -TERM "$(cat "$RUN/$1.pid")"
    sleep 0.1
  done
  kill -KILL "$(cat "$RUN/$1.pid")"
}

ask() { # the program $1 for the page $2, in a second at most; prints the body
  # shellcheck disable=SC2016 # for the other bash
  timeout 1 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && printf "GET %s HTTP/1.0\r\n\r\n" "$1" >&3 && cat <&3' \
    "${HTTP[$1]}" "$2" 2>/dev/null | sed '1,/^\r*$/d'
}

told() { # what a program says of itself, or waits for
  local answer
  if marked "$1.waits"; then
    cat "$RUN/$1.waits"
  elif [ "$1" = gnb ]; then # no page to ask: what it said last
    tail -n 1 "$LOGS/gnb.txt" 2>/dev/null
  else
    answer=$(ask "$1" /readyz)
    echo "${answer:-begins, or does not answer on port ${HTTP[$1]}}"
  fi
}

status() { # into STATUS and INFO
  local name
  INFO=
  if marked finished; then
    STATUS=FINISHED INFO="the logs are in $LOGS"
  elif marked stopping; then
    STATUS=STOPPING INFO="the programs end, then the logs are collected"
  elif marked failed; then
    STATUS=ERROR INFO=$(cat "$RUN/failed")
  elif marked ready; then
    STATUS=READY
    if marked started; then STATUS=ACTIVE; fi
    for name in $(programs); do
      if runs "$name"; then
        INFO+="${INFO:+; }$name: $(told "$name")"
      else
        STATUS=ERROR
        INFO+="${INFO:+; }$name has ended: $(tail -n 1 "$LOGS/$name.txt" 2>/dev/null)"
      fi
    done
  elif marked booting; then
    STATUS=BOOTING INFO="the programs read their options"
  elif [ ! -e "$CONFIG" ]; then
    STATUS=OFF INFO="$CONFIG is missing: name a ModemConfig in the batch file, or copy one there and run boot.sh"
  else
    STATUS=OFF INFO="boot.sh has not run yet"
  fi
}

as_json() { # a JSON string of whatever is on stdin: printable ASCII stays, all else becomes a space
  printf '"%s"' "$(head -c 1000 | LC_ALL=C tr -c '\40-\176' ' ' | sed 's/[\\"]/\\&/g; s/  */ /g; s/ $//')"
}
