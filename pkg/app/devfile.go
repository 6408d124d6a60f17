package app

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"text/template"
)

// devSecrets are what the sample file takes from the environment, as a real one would. They open nothing but the
// simulated chats.
type devSecrets struct{ values map[string]string }

func (d devSecrets) lookup(name string) (string, bool) {
	v, ok := d.values[name]
	return v, ok
}

// devFile is the sample file with its addresses filled in.
type devFile struct {
	Listen, Metrics, Public, TokenHash, SlackAPI, TelegramAPI, LogPath string

	Fetch bool // buttons and commands by Socket Mode and polling

	Pace string // of the chats, as the end of a notifier: ", pace: off"; empty: the usual one
}

func (d devFile) text(tokenHash []byte) ([]byte, error) {
	d.TokenHash = hex.EncodeToString(tokenHash)
	var b bytes.Buffer
	if err := devTemplate.Execute(&b, d); err != nil {
		return nil, fmt.Errorf("write the sample file: %w", err)
	}
	return b.Bytes(), nil
}

// Slack is how presses come back from there, as a part of a notifier.
func (d devFile) Slack() string {
	if d.Fetch {
		return `app_token: "${SLACK_APP_TOKEN}"`
	}
	return `signing_secret: "${SLACK_SIGNING_SECRET}"`
}

// Telegram is the same there.
func (d devFile) Telegram() string {
	if d.Fetch {
		return "poll: true"
	}
	return `webhook_secret: "${TELEGRAM_SECRET}"`
}

// The users' addresses are those of the simulated chats. Dee has none: pressing a button as Dee shows how an account
// is linked.
var devTemplate = template.Must(template.New("tocsin.yaml").Funcs(template.FuncMap{"quote": func(s string) string { return fmt.Sprintf("%q", s) }}).Parse(`# The sample file of tocsin dev, written anew at each start.
server:
  listen: {{quote .Listen}}
  metrics_listen: {{quote .Metrics}}
  public_url: {{quote .Public}}
  tokens:
    - {name: dev, hash: "sha256:{{.TokenHash}}", scopes: [admin]}
database: {url: "${TOCSIN_DEV_DATABASE}"}

users:
  - {id: ana, name: Ana Torres, email: ana@example.com, time_zone: Europe/Madrid,
     contacts: [{via: slack-dm, address: U0ANA}, {via: telegram-dm, address: "501"}]}
  - {id: bo, name: Bo Lind, email: bo@example.com, time_zone: Europe/Stockholm,
     contacts: [{via: slack-dm, address: U0BO}, {via: telegram-dm, address: "502"}]}
  - {id: cho, name: Cho Park, email: cho@example.com, time_zone: Asia/Seoul,
     contacts: [{via: slack-dm, address: U0CHO}, {via: telegram-dm, address: "503"}]}
  - {id: dee, name: Dee Okafor, email: dee@example.com, time_zone: Africa/Lagos,
     contacts: [{via: slack-dm}, {via: telegram-dm}]}

schedules:
  - id: primary
    name: Primary
    time_zone: Europe/Berlin
    layers: [{name: weekly, users: [ana, bo], every: 1 week, start: "2026-01-05 09:00"}]

escalations:
  default:
    repeat: 2
    every: 5m
    steps:
      - {after: 0m, page: ["schedule:primary"]}
      - {after: 2m, page: ["user:cho"]}

notifiers:
  ops-slack: {type: slack, token: "${SLACK_TOKEN}", {{.Slack}}, channel: C0OPS, api_url: {{quote .SlackAPI}}, timeout: 5s{{.Pace}}}
  slack-dm: {type: slack, token: "${SLACK_TOKEN}", {{.Slack}}, api_url: {{quote .SlackAPI}}, timeout: 5s{{.Pace}}}
  ops-telegram: {type: telegram, token: "${TELEGRAM_TOKEN}", {{.Telegram}}, chat_id: "-1001000000001", api_url: {{quote .TelegramAPI}}, timeout: 5s{{.Pace}}}
  telegram-dm: {type: telegram, token: "${TELEGRAM_TOKEN}", {{.Telegram}}, api_url: {{quote .TelegramAPI}}, timeout: 5s{{.Pace}}}
  team-log: {type: log, path: {{quote .LogPath}}, timeout: 5s}

routes:
  - {match: "alert.*.critical.#", notify: [ops-slack, ops-telegram], escalate: default}
  - {match: "alert.#", notify: [ops-slack, team-log]}
  - {match: "alert.*.*._tocsin", notify: [ops-slack, ops-telegram]}
`))

// devSample is what an Alertmanager would send: a group of two firing alerts.
const devSample = `{
  "receiver": "tocsin", "status": "firing", "version": "4", "truncatedAlerts": 0,
  "groupKey": "{}:{alertname=\"DiskAlmostFull\"}",
  "groupLabels": {"alertname": "DiskAlmostFull"},
  "commonLabels": {"alertname": "DiskAlmostFull", "severity": "critical", "job": "db", "team": "storage"},
  "commonAnnotations": {"summary": "Disks of the database are almost full"},
  "externalURL": "http://alertmanager.example.com",
  "alerts": [
    {"status": "firing", "fingerprint": "c1a0f1e0d2b3a401", "startsAt": "2026-01-05T09:00:00Z", "endsAt": "0001-01-01T00:00:00Z",
     "labels": {"alertname": "DiskAlmostFull", "severity": "critical", "job": "db", "team": "storage", "instance": "db-1"},
     "annotations": {"summary": "Disks of the database are almost full", "description": "/var/lib/postgresql on db-1 has 3 % left", "runbook_url": "https://runbooks.example.com/disk"},
     "generatorURL": "http://prometheus.example.com/graph?g0.expr=disk_free"},
    {"status": "firing", "fingerprint": "c1a0f1e0d2b3a402", "startsAt": "2026-01-05T09:00:00Z", "endsAt": "0001-01-01T00:00:00Z",
     "labels": {"alertname": "DiskAlmostFull", "severity": "critical", "job": "db", "team": "storage", "instance": "db-2"},
     "annotations": {"summary": "Disks of the database are almost full", "description": "/var/lib/postgresql on db-2 has 5 % left", "runbook_url": "https://runbooks.example.com/disk"},
     "generatorURL": "http://prometheus.example.com/graph?g0.expr=disk_free"}
  ]
}`
