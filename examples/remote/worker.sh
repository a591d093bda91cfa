#!/usr/bin/env bash
# A headrace worker in bash, with curl and jq: it runs a command for each job of a task.
#   HEADRACE_HUB=https://hub.example HEADRACE_KEY=hr_… ./worker.sh resize ./resize.sh --quality 80
# The command reads the payload and prints the result, both as JSON. Lines such as "40 halfway" that it writes to file
# descriptor 3 are its progress. Exit code 0: completed; 75: failed, to be tried again; any other: failed for good.
set -euo pipefail
hub=${HEADRACE_HUB:-http://127.0.0.1:8470} task=${1:?which task?} dir=$(mktemp -d) token='' lease='' tries=1000
shift
headers=(-H 'Content-Type: application/json' ${HEADRACE_KEY:+-H "Authorization: Bearer $HEADRACE_KEY"})

# say MESSAGE FIELDS [ARG…]: FIELDS are for jq. Until the hub answers: every message may be repeated.
say() {
  jq -nc --arg name "$(hostname)-$$" --arg token "$token" --arg lease "$lease" "${@:3}" "$2" >"$dir/said"
  curl -sS -m 90 --retry "$tries" --retry-delay 1 --retry-all-errors "${headers[@]}" -d "@$dir/said" \
    -o "$dir/answer" "$hub/api/work/$1" &
  wait $! # beside this shell, so that a signal is heard meanwhile
  if is '.type | test("^http.*(?<!stale-job)$")'; then cat "$dir/answer" >&2 && exit 1; fi
}
is() { jq -e "$1" "$dir/answer" >"$dir/is"; }

leave() { # give back what is under way
  trap '' INT TERM && tries=3
  kill $(jobs -p) 2>"$dir/errors" || true
  [[ -z $lease ]] || say release_job '{$lease}'
  rm -r "$dir"
}

run() { # the command, while the hub hears of it
  local pid line percent=0 text='' taken='' code=0
  rm -f "$dir/progress" && mkfifo "$dir/progress"
  say accept_job '{$lease}' && say start_job '{$lease}'
  "$@" <"$dir/payload" >"$dir/result" 2>"$dir/errors" 3>"$dir/progress" &
  pid=$! && exec 4<"$dir/progress"
  while read -r -t "$beat" line <&4 || (($? > 128)); do # without a line the last one is said again: it is at work
    [[ -z $line ]] || read -r percent text <<<"$line"
    say update_job_progress '{$lease, progress: ($n | tonumber? // 0), $message}' \
      --arg n "$percent" --arg message "$text"
    is '(.type | endswith("stale-job")) or .cancel == true' && taken=1 && break
  done
  [[ -z $taken ]] || kill $pid || true
  wait $pid && jq empty "$dir/result" 2>>"$dir/errors" || code=$? # what it printed is JSON, or that is the error
  if [[ $taken ]]; then say release_job '{$lease}'; elif ((code)); then # by a release a cancelled one ends
    say fail_job '{$lease, $error, retry: ($type == "Exit75"), error_details: {error_type: $type}}' \
      --arg type "Exit$code" --rawfile error "$dir/errors"
  else say complete_job '{$lease, result: $result[0]}' --slurpfile result "$dir/result"; fi
}

trap leave EXIT
trap 'exit 0' INT TERM
say register_worker '{worker_id: $name, tasks: [$task]}' --arg task "$task"
token=$(jq -r .token "$dir/answer") beat=$(jq .heartbeat_seconds "$dir/answer")
while say claim_job '{worker_id: $name, $token, wait: 30, $request}' --arg request "$SECONDS.$RANDOM"; do
  if is '.type == "job_assigned"'; then
    jq -c .payload "$dir/answer" >"$dir/payload" && lease=$(jq -r .lease "$dir/answer")
    run "$@"
    lease=''
  else sleep "$(jq .retry_after "$dir/answer")"; fi
done
