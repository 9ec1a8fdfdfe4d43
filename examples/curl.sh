#!/bin/sh
# A session, a streamed turn, its history, and the live stream from a cursor: with curl alone.
set -eu
server=${1:-http://127.0.0.1:8888}

post() {
  curl -sS --fail-with-body "$server$1" -H 'content-type: application/json' -d "$2"
}

session=$(post /api/v1/sessions/create '{"name": "My Session"}' | sed 's/.*"sessionId":"\([^"]*\)".*/\1/')

# With a key, a query that is sent twice is one turn.
curl -sS -N "$server/api/v1/sessions/query/stream" -H 'content-type: application/json' \
  -H "idempotency-key: hello-$session" -d "{\"sessionId\": \"$session\", \"query\": \"Hello\"}"

curl -sS "$server/api/v1/sessions/events?sessionId=$session&limit=50&offset=0"

# Everything after place 3, then live; `--max-time` ends it.
curl -sS -N --max-time 1 "$server/api/v1/sessions/events/stream?sessionId=$session&after=3" || [ $? -eq 28 ]
