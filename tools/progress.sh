# Progress of tools/setup.sh, which sources this: what is fetched, of how much.  `log` is the file for all other output.
# shellcheck shell=bash disable=SC2154 # log
# On a terminal, progress is one line that changes; elsewhere it is a line every `log_every_s`, without control characters.

if [ -t 2 ] && [ "${TERM:-dumb}" != dumb ]; then
  clear_line=$'\r\033[K'
else
  clear_line=''
fi
log_every_s=10
last_shown_s=$SECONDS

say() { printf '%ssetup: %s\n' "$clear_line" "$*" >&2; }

show() {
  if [ -n "$clear_line" ]; then
    local text="setup: $*"
    printf '%s%s' "$clear_line" "${text:0:79}" >&2
  elif ((SECONDS - last_shown_s >= log_every_s)); then
    last_shown_s=$SECONDS
    say "$@"
  fi
}

to_fetch() { # MB: how much, and how long that takes on a slow line
  local time="$1 s"
  (($1 < 100)) || time="$((($1 + 59) / 60)) min"
  printf '%s MB to fetch (%s at 1 MB/s)' "$1" "$time"
}

show_apt() { # MB: from apt's status lines (its README.progress-reporting)
  local total_mb=$1 line kind item percent text
  while IFS= read -r line; do
    IFS=: read -r kind item percent text <<<"$line"
    case $kind in
      dlstatus)
        text=${text#Retrieving } text=${text/ (/, } text=${text%)}
        show "fetched $((total_mb * ${percent%.*} / 100)) of $total_mb MB ($text)"
        ;;
      pmstatus) show "unpacking and installing, ${percent%.*} % ($item)" ;;
      *) printf '%s\n' "$line" >>"$log" ;;
    esac
  done
  printf '%s' "$clear_line" >&2
}

show_pip() { # MB: from the lines with which pip begins to fetch a file
  local total_mb=$1 line name size fetched_kb=0
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    case $line in
      *Downloading*\(*\)*)
        name=${line#*Downloading } name=${name%% \(*} name=${name##*/} size=${line##*\(} size=${size%\)*}
        show "fetched $((fetched_kb / 1000)) of about $total_mb MB; now ${name%%-*} ($size)"
        case $size in # 10.3 MB, 875 kB, 9.8 kB, 789 bytes
          *" MB") size=${size% MB} fetched_kb=$((fetched_kb + 100 * 10#${size/./})) ;;
          *" kB") size=${size% kB} fetched_kb=$((fetched_kb + 10#${size%.*})) ;;
        esac
        ;;
      "Installing collected packages"*) say "fetched $((fetched_kb / 1000)) MB; installing" ;;
    esac
  done
  printf '%s' "$clear_line" >&2
}
