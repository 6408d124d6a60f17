#!/bin/sh
# Tells Telegram where a bot's buttons go: once per bot, and again when the secret or the address changes.
#
#   TELEGRAM_TOKEN=... TELEGRAM_WEBHOOK_SECRET=... ./set-webhook.sh https://tocsin.example.com ops-telegram
#
# The first argument is server.public_url, the second the name of a telegram notifier with this token and secret.
set -eu

usage() {
	echo "usage: TELEGRAM_TOKEN=... TELEGRAM_WEBHOOK_SECRET=... $0 PUBLIC_URL NOTIFIER" >&2
	exit 2
}
[ $# -eq 2 ] && [ -n "${TELEGRAM_TOKEN:-}" ] && [ -n "${TELEGRAM_WEBHOOK_SECRET:-}" ] || usage

# The token and the secret go in on the standard input, so that no list of processes shows them.
curl -sS --fail-with-body --config - <<END
url = "${TELEGRAM_API:-https://api.telegram.org}/bot$TELEGRAM_TOKEN/setWebhook"
data-urlencode = "url=${1%/}/telegram/$2"
data-urlencode = "secret_token=$TELEGRAM_WEBHOOK_SECRET"
data-urlencode = "allowed_updates=[\\"callback_query\\",\\"message\\"]"
END
echo
