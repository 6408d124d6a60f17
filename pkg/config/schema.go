package config

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// shape is what one place of the file may hold. The table below is written beside the loader and not made from it: a test
// compares the keys of both, so that neither can forget one.
type shape struct {
	doc   string
	sort  string             // text, duration, whole, boolean, one (of), list, map, object; entries: a text or a map of texts; off: "off" or an object; either: a text or an object
	need  bool               // the key can't be left out
	least int                // whole
	most  int                // whole
	words []string           // one
	of    *shape             // list, map
	keys  map[string]shape   // object, off, either
	types map[string][]named // object: keys that only entries of one `type` have
}

// named is a key of an object with what it holds.
type named struct {
	key   string
	shape shape
}

func text(doc string) shape { return shape{sort: "text", doc: doc} }
func span(doc string) shape { return shape{sort: "duration", doc: doc} }
func yes(doc string) shape  { return shape{sort: "boolean", doc: doc} }
func count(doc string, least, most int) shape {
	return shape{sort: "whole", doc: doc, least: least, most: most}
}
func one(doc string, words ...string) shape      { return shape{sort: "one", doc: doc, words: words} }
func listOf(doc string, of shape) shape          { return shape{sort: "list", doc: doc, of: &of} }
func mapOf(doc string, of shape) shape           { return shape{sort: "map", doc: doc, of: &of} }
func group(doc string, k map[string]shape) shape { return shape{sort: "object", doc: doc, keys: k} }
func eachOf(doc string) shape {
	all := text("")
	return shape{sort: "entries", doc: doc, of: &all}
}
func needed(s shape) shape { s.need = true; return s }

// activeShape is a part of the week.
func activeShape(doc, zone string) shape {
	return group(doc, map[string]shape{
		"days": listOf("mon, tue, wed, thu, fri, sat, sun, or several in a row like mon-fri; all, if left out.", text("")), "hours": text("As 09:00-17:30, or 22:00-07:00 over midnight; all, if left out."), "time_zone": text("Of the hours; " + zone + "."),
	})
}

// fileShape is the whole file.
func fileShape() shape {
	return group("The file of tocsin: who is told of what.", map[string]shape{
		"server": needed(group("Where it listens and what it calls itself.", map[string]shape{
			"listen": text("API, callbacks, health; :8080."), "metrics_listen": text("Prometheus metrics, a port of its own; :9090."),
			"public_url":     needed(text("How people and chats reach it; links begin with it.")),
			"shutdown_grace": span("How long calls in flight may take at a stop."),
			"allow_private":  listOf("Ranges of addresses that URLs from outside the file may lead to.", text("As 10.1.0.0/16.")),
			"tokens": listOf("API tokens.", group("", map[string]shape{
				"name": needed(text("Shown in the audit trail.")), "hash": needed(text("sha256: and the hash of the token's text.")),
				"scopes": needed(listOf("What it may do.", one("", scopes...))),
			})),
		})),
		"database": group("The one Postgres.", map[string]shape{
			"url": text("postgres://user:password@host:5432/tocsin; TOCSIN_DATABASE_URL goes before it."), "listen_url": text("A direct connection for LISTEN where a pooler stands between."),
			"max_connections": count("For requests, of one replica; 20.", 4, 1000),
		}),
		"worker":    group("", map[string]shape{"lease": span("How long one replica owns a delivery."), "poll": span("How often it looks for work without being woken; 1s.")}),
		"reload":    group("", map[string]shape{"grace": span("How long no live replica may know a notifier before what waits for it dies; 15m.")}),
		"retention": span("How long what is over is kept, at least 7d; 90d."),
		"users": listOf("People who can be on call.", group("", map[string]shape{
			"id": needed(text("Other parts of the file refer to it.")), "name": text("What messages call the person."), "email": text(""), "time_zone": text("As Europe/Berlin."), "role": text(""),
			"quiet_hours": {sort: "either", doc: "What is not urgent waits for their end: 22:00-07:00, or a part of the week.", keys: activeShape("", "the person's").keys},
			"contacts": listOf("The ways to reach the person, in order.", group("", map[string]shape{
				"via": needed(text("A notifier.")), "address": text("Instead of the linked account's."), "after": span("How long after the page began."), "urgency": one("Only for incidents of that urgency.", "high", "low"),
			})),
		})),
		"schedules": listOf("Who is on call when.", group("", map[string]shape{
			"notices": {sort: "off", doc: "What people are told of their shifts: of the start, if left out.", keys: map[string]shape{
				"start": yes("When it starts; true."), "end": yes("When it ends."), "evening": text("The day before it starts, at this time: 18:00."),
			}},
			"user_group": {sort: "either", doc: "A Slack user group that has whoever is on call as its members.", keys: map[string]shape{"id": needed(text("S...")), "notifier": needed(text("Of type slack, with a token."))}},
			"id":         needed(text("schedule:ID in escalations.")), "name": text(""), "owner": text(""), "time_zone": needed(text("Of its wall clocks, as Europe/Berlin.")),
			"coverage": one("partial: gaps are meant, and nobody is told of them.", "full", "partial"),
			"ical_url": text("A calendar that is one more layer, above the others; as ${NAME}."),
			"layers": listOf("Where several cover an instant, the later one counts. Needed, unless there is an ical_url.", group("", map[string]shape{
				"name": text(""), "users": listOf("In the order of their turns; an item may be a list of people. Needed, unless there is an ical_url.", shape{sort: "turn"}),
				"ical_url": text("A calendar that says who is on call when, instead of users; as ${NAME}."),
				"every":    text("Length of a turn: 12 hours, 1 day, 2 weeks, 1 month."), "start": text("When the first turn begins: 2026-01-05 09:00."), "end": text("The layer ends before it."),
				"time_zone": text("Of its wall clocks and hours; the schedule's, if left out."), "active": activeShape("When it counts; always, if left out.", "the layer's"),
				"skip_inactive": yes("A turn in which it never counts is nobody's; else it is somebody's who does nothing."),
			})),
		})),
		"escalations": mapOf("Who is paged when, until someone answers.", group("", map[string]shape{
			"repeat": count("Further rounds; 0.", 0, maxRepeat), "every": span("From one round to the next."), "ack_timeout": span("It rings again that long after an acknowledgement, unless it is resolved; never."),
			"steps": needed(listOf("In the order of after.", group("", map[string]shape{
				"after": span("From the beginning of the round."), "page": listOf("schedule:ID, layer:ID/NAME or user:ID.", text("")), "notify": listOf("Notifiers with a place of their own.", text("")),
			}))),
		})),
		"notifiers": mapOf("Named ways out.", notifierShape()),
		"routes": listOf("Which alerts go where.", group("", map[string]shape{
			"match": needed(text("Topic pattern: * is one word, # any number of words.")), "labels": mapOf("Labels that must be equal.", text("")),
			"matchers": listOf(`Conditions on labels, as team="db".`, text("")), "notify": listOf("Notifiers with a place of their own.", text("")), "escalate": text("An escalation."),
			"group_by": listOf("Labels that make the incident's key.", text("")),
			"active":   activeShape("When the route takes alerts; always, if left out.", "UTC"),
		})),
		"sources": mapOf("What sends alerts.", group("", map[string]shape{
			"type": needed(one("What it speaks.", sourceTypes...)), "token": text("Alerts from it carry this token."), "query_token": yes("The token may come as ?token=; generic only."),
			"group_by": listOf("Labels that make the incident's key.", text("")), "reopen_after": span("How long re-sends of what a person resolved open nothing; 4h."),
			"rate": text("Of requests, on each replica: 100/s."), "max_body": text("As 512KiB or 2MiB."),
			"topic": group("The words of the topic, with expressions in braces.", map[string]shape{
				"kind": text("{labels.alertname}, if left out."), "criticality": text("{labels.severity}, if left out."), "job": text("{labels.job}, if left out."),
			}),
			"fields": group("Generic: expressions that find an alert in a message.", map[string]shape{
				"alerts": text("The list of alerts; the message is one, if left out."), "title": needed(text("")), "text": text(""), "key": text("The incident's key."), "status": text("firing or resolved."),
				"fingerprint": text(""), "starts_at": text(""), "ends_at": text(""), "labels": eachOf("One expression for all, or one for each."), "links": eachOf("One expression for all, or one for each."),
			}),
		})),
		"heartbeats": mapOf("What must call every so often.", group("", map[string]shape{
			"every": needed(span("How long it may be silent.")), "criticality": text("critical, if left out."), "token": text("Its calls carry this token."), "query_token": yes("The token may come as ?token=."),
		})),
		"kinds": group("How patient each kind of delivery is.", kindShapes()),
	})
}

func kindShapes() map[string]shape {
	out := map[string]shape{}
	for _, k := range delivery.Kinds {
		keys := map[string]shape{
			"on_unknown": one("After an attempt that may have arrived.", string(delivery.Retry), string(delivery.Hold)), "lifetime": span("From its making."),
		}
		if k == delivery.Page {
			keys["wait"] = span("How long it waits for the incident's card; 5s.")
		}
		out[string(k)] = group("", keys)
	}
	return out
}

func notifierShape() shape {
	pace := func(group bool) named {
		s := shape{sort: "off", doc: "How often it may call.", keys: map[string]shape{"destination": text("Each channel, person or URL: 1/s, 20/m, 5/10s, off."), "account": text("All destinations of the same credentials together.")}}
		if group {
			s.keys["group"] = text("Each group or channel, besides.")
		}
		return named{"pace", s}
	}
	s := group("", map[string]shape{
		"type": needed(one("", types...)), "timeout": span("Of one call; 10s, telegram 30s."), "concurrency": count("Calls at the same time, of one replica; 4.", 1, 1000), "off": yes("What is for it dies."),
		"retries": group("", map[string]shape{"count": count("Further tries after the first; no cap.", 0, 1_000_000), "delay": span("Before the first further try; 2s."), "max_delay": span("The longest wait between tries; 5m.")}),
	})
	s.types = map[string][]named{
		"slack": {pace(false), {"token", text("Bot token.")}, {"webhook_url", text("An incoming webhook, instead of a token.")}, {"channel", text("Channel id; direct messages, if left out.")},
			{"signing_secret", text("Of the Slack app; without it buttons are refused.")},
			{"app_token", text("App-level token: buttons and commands come by Socket Mode.")}, {"api_url", text("Another server.")}},
		"telegram": {pace(true), {"token", needed(text("From @BotFather."))}, {"chat_id", text("Number of a group or channel, or @name; direct messages, if left out.")},
			{"message_thread_id", count("A topic of that group.", 1, 1<<31-1)}, {"webhook_secret", text("Without it buttons are refused.")},
			{"poll", yes("Ask for updates instead of being called.")}, {"api_url", text("Another server.")}},
		"webhook": {pace(false), {"url", needed(text("Gets a POST per event."))}, {"secret", text("Key of the signature.")}, {"secrets", listOf("Keys of the signatures, while a receiver changes over.", text(""))},
			{"events", listOf("What it is told of.", one("", HearsIncident, HearsDelivery, HearsOnCall))}, {"headers", mapOf("Further headers.", text(""))}},
		"log": {pace(false), {"path", needed(text("The file that events are appended to."))}},
	}
	return s
}

// Schema is a JSON Schema of the file, for editors. It is a help in writing; what the file means, and whether all of it fits
// together, only `tocsin check` says.
func Schema() []byte {
	root := fileShape().schema()
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "tocsin.yaml"
	root["patternProperties"] = map[string]any{"^x-": map[string]any{"description": "A place for anchors."}}
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil { // maps, texts and numbers only
		return nil
	}
	return append(b, '\n')
}

// filledIn is a text that a variable is filled into: what it will be, only the loader knows.
var filledIn = map[string]any{"type": "string", "pattern": `\$\{.+\}`}

func (s shape) schema() map[string]any {
	out := map[string]any{}
	switch s.sort {
	case "text":
		out["type"] = []string{"string", "number", "boolean"} // a number without quotes is a text, too
	case "duration":
		out["anyOf"] = []any{map[string]any{"type": "string", "pattern": `^([0-9.]+(w|d|h|m|s|ms|us|µs|ns))+$|^0$`}, map[string]any{"const": 0}, filledIn}
	case "boolean":
		out["anyOf"] = []any{map[string]any{"type": "boolean"}, filledIn}
	case "whole":
		out["anyOf"] = []any{map[string]any{"type": "integer", "minimum": s.least, "maximum": s.most}, map[string]any{"type": "string", "pattern": `^[0-9]+$`}, filledIn}
	case "one":
		out["anyOf"] = []any{map[string]any{"enum": s.words}, filledIn}
	case "turn":
		out["anyOf"] = []any{text("").schema(), map[string]any{"type": "array", "items": text("").schema(), "minItems": 1}}
	case "list":
		list := map[string]any{"type": "array", "items": s.of.schema()}
		if s.of.sort != "text" && s.of.sort != "one" {
			out = list
			break
		}
		out["anyOf"] = []any{list, s.of.schema()} // one name may be written as the name
	case "entries":
		out["anyOf"] = []any{text("").schema(), mapOf("", text("")).schema()}
	case "map":
		out["type"], out["additionalProperties"] = "object", s.of.schema()
	case "either":
		out["anyOf"] = []any{text("").schema(), group("", s.keys).schema()}
	case "off":
		out["anyOf"] = []any{map[string]any{"const": "off"}, map[string]any{"const": false}, group("", s.keys).schema()}
	case "object":
		out = s.object()
	}
	if s.doc != "" {
		out["description"] = s.doc
	}
	return out
}

// object is the schema of an object. Where its keys depend on its type, each type has one of its own: an editor offers what
// fits.
func (s shape) object() map[string]any {
	closed := func(keys map[string]shape) map[string]any {
		properties, need := map[string]any{}, []string{}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if properties[k] = keys[k].schema(); keys[k].need {
				need = append(need, k)
			}
		}
		o := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
		if len(need) > 0 {
			o["required"] = need
		}
		return o
	}
	if s.types == nil {
		return closed(s.keys)
	}
	var each []any
	for _, t := range slices.Sorted(maps.Keys(s.types)) {
		keys := maps.Clone(s.keys)
		for _, n := range s.types[t] {
			keys[n.key] = n.shape
		}
		each = append(each, map[string]any{
			"if":   map[string]any{"properties": map[string]any{"type": map[string]any{"const": t}}, "required": []string{"type"}},
			"then": closed(keys),
		})
	}
	return map[string]any{"type": "object", "properties": map[string]any{"type": s.keys["type"].schema()}, "required": []string{"type"}, "allOf": each}
}
