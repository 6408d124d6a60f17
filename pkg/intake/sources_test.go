package intake_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// sourcesFile is what the file says of sources.
const sourcesFile = `
server: {public_url: "https://tocsin.example.com"}
database: {url: "postgres://unused@localhost/unused"}
notifiers: {a: {type: log, path: /tmp/a}}
routes: [{match: "alert.#", notify: [a]}]
sources:
  am-east: {type: alertmanager, token: t1, topic: {job: payments, criticality: '{labels.priority ?? "warning"}'}}
  am-west: {type: alertmanager, token: t2}
  prom: {type: prometheus, token: t3, group_by: [cluster]}
  graf: {type: grafana, token: t4, topic: {job: '{labels.grafana_folder}'}}
  brittle-am: {type: alertmanager, token: t8, topic: {job: '{labels.team.name}'}}
  brittle-prom: {type: prometheus, token: t9, topic: {job: '{split(labels.team, ":")[1]}'}}
  brittle-json: {type: generic, token: t10, topic: {job: '{body.a.b}'}, fields: {title: '"t"', labels: alert.labels}}
  own: {type: native, token: t5, topic: {criticality: high, job: '{labels.team}'}}
  ci:
    type: generic
    token: t6
    topic: {kind: build, criticality: '{alert.branch == "main" ? "high" : "info"}', job: '{labels.repo}'}
    fields:
      title: alert.repo + " " + alert.result
      text: alert.log
      key: alert.repo
      status: 'alert.result == "ok" ? "resolved" : "firing"'
      labels: {repo: alert.repo, branch: alert.branch, number: alert.number}
      links: {Build: alert.url}
  many:
    type: generic
    token: t7
    fields:
      alerts: body.items
      title: alert.name
      labels: alert.labels
      links: alert.links
      fingerprint: alert.id
      status: alert.active
      starts_at: alert.since
      ends_at: alert.until
`

func withSources(t *testing.T, f *config.File) {
	t.Helper()
	parsed, _, err := config.Parse("f", []byte(sourcesFile), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	f.Sources = parsed.Sources
}

// send reads what a source sent and accepts it.
func (w *world) send(source string, body any) []intake.Result {
	w.t.Helper()
	text, ok := body.(string)
	if !ok {
		b, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		text = string(b)
	}
	m := w.read(source, text)
	if len(m.Wrong) > 0 {
		w.t.Fatalf("%s: %v", source, m.Wrong[0])
	}
	rs, err := w.acceptAll(m)
	if err != nil {
		w.t.Fatal(err)
	}
	return rs
}

func (w *world) acceptAll(m intake.Message) (out []intake.Result, err error) {
	w.t.Helper()
	rs, err := w.in.AcceptAll(w.t.Context(), m.Groups)
	for _, r := range rs {
		if r != nil {
			out = append(out, *r)
		}
	}
	return out, err
}

func (w *world) read(source, body string) intake.Message {
	w.t.Helper()
	m, err := intake.Read(w.file, w.file.Sources[source], []byte(body))
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// pushed is an alert of Prometheus; a zero time is left out.
type pushed struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
	StartsAt    time.Time         `json:"startsAt,omitzero"`
	EndsAt      time.Time         `json:"endsAt,omitzero"`
}

func push(starts, ends time.Time, labels ...string) []pushed {
	p := pushed{Labels: map[string]string{"alertname": "DiskFull", "severity": "critical", "job": "db"}, Annotations: map[string]string{"summary": "Disk is full"}, StartsAt: starts, EndsAt: ends}
	for i := 0; i+1 < len(labels); i += 2 {
		p.Labels[labels[i]] = labels[i+1]
	}
	return []pushed{p}
}

// now is the database's clock.
func (w *world) now() time.Time { return one[time.Time](w, "select clock_timestamp()").UTC() }

func TestAReSendOfPrometheusChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		withSources(t, f)
		f.Sources["prom"] = config.Source{Name: "prom", Type: "prometheus"}
	})
	now := w.now()
	r := w.send("prom", push(now.Add(-time.Minute), now.Add(4*time.Minute)))[0]
	before := w.incident(r.IncidentID)
	if before.Topic != "alert.diskfull.critical.db" || before.Title != "Disk is full" || !r.Opened {
		t.Errorf("%+v", before)
	}
	revision := w.snapshot(r.IncidentID)
	got := w.send("prom", push(now.Add(-time.Minute), now.Add(5*time.Minute)))[0]
	after := w.incident(r.IncidentID)
	if got.IncidentID != r.IncidentID || len(got.Deliveries) > 0 || after.Revision != before.Revision || after.Sequence != before.Sequence || after.Count != 2 {
		t.Errorf("%+v after %+v", after, before)
	}
	if ends := one[time.Time](w, "select ends_at from alert"); !ends.Equal(now.Add(5 * time.Minute).Truncate(time.Microsecond)) {
		t.Errorf("it holds until %s", ends)
	}
	if s := w.snapshot(r.IncidentID); s.Alerts[0].EndsAt != nil || cmp.Diff(revision, s) != "" {
		t.Errorf("the card shows %+v", s)
	}
	if got := w.send("prom", push(now.Add(-time.Minute), now.Add(-time.Second)))[0]; got.State != message.Resolved || got.IncidentID != r.IncidentID {
		t.Errorf("an end in the past: %+v", got)
	}
	if got := w.send("prom", push(now.Add(-time.Minute), now.Add(-time.Second))); got[0].Opened {
		t.Errorf("it is resolved again: %+v", got)
	}
}

func TestAlertsOfOnePushAreIncidentsByKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	now := w.now()
	all := append(push(now, now.Add(time.Hour), "cluster", "a", "host", "1"), push(now, now.Add(time.Hour), "cluster", "a", "host", "2")...)
	all = append(all, push(now, now.Add(time.Hour), "cluster", "b", "host", "1")...)
	rs := w.send("prom", all)
	if len(rs) != 2 || w.incident(rs[0].IncidentID).Firing != 2 || w.incident(rs[1].IncidentID).Firing != 1 {
		t.Fatalf("by group_by of the source: %+v", rs)
	}
	w.file.Sources = maps.Clone(w.file.Sources)
	w.file.Sources["plain"] = config.Source{Name: "plain", Type: "prometheus"}
	if rs := w.send("plain", all); len(rs) != 3 {
		t.Errorf("by name and labels: %d incidents", len(rs))
	}
	w.file.Routes[0].GroupBy = []string{"alertname"}
	if rs := w.send("plain", all); len(rs) != 1 {
		t.Errorf("by group_by of the route: %d incidents", len(rs))
	}
}

// One that the database does not take holds up no other of the message, wherever it stands.
func TestOneIncidentThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	w.exec(`create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no' using errcode = '53100'; end $$;
		create trigger refuse before insert on incident for each row when (new.key like '%bad%') execute function refuse()`)
	now := w.now()
	var all []pushed
	for _, cluster := range []string{"a", "b", "bad", "c", "d"} {
		all = append(all, push(now, now.Add(time.Hour), "cluster", cluster)...)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	m := w.read("prom", string(text))
	for range 3 {
		rs, err := w.acceptAll(m)
		var wrong *intake.InputError
		if len(rs) != 4 || err == nil || errors.As(err, &wrong) {
			t.Fatalf("%+v, %v", rs, err)
		}
	}
	if n := one[int](w, "select count(*)::int from incident"); n != 4 {
		t.Errorf("%d incidents", n)
	}
}

// prometheus/common's model.LabelSet.Fingerprint gives the same.
func TestFingerprintIsAlertmanagers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	m := w.read("prom", `[{"labels": {}}, {"labels": {"name": "garland Briggs", "fear": "love is not enough"}}]`)
	if len(m.Wrong) != 1 || m.Wrong[0].Field != "alerts[0].labels" || len(m.Groups) != 1 || m.Groups[0].Alerts[0].Fingerprint != "990523927a51be08" {
		t.Errorf("%+v", m)
	}
}

func TestTwoAlertmanagersDoNotMeet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	body := string(am(t, 0, "a firing critical"))
	east, west, again := w.send("am-east", body)[0], w.send("am-west", body)[0], w.send("am-east", body)[0]
	if east.IncidentID == west.IncidentID || east.IncidentID != again.IncidentID {
		t.Errorf("%s, %s, %s", east.IncidentID, west.IncidentID, again.IncidentID)
	}
	if topic := w.incident(east.IncidentID).Topic; topic != "alert.instancedown.warning.payments" {
		t.Errorf("by the file's topic: %s", topic)
	}
	if topic := w.incident(west.IncidentID).Topic; topic != "alert.instancedown.critical.load_balancer" {
		t.Errorf("by default: %s", topic)
	}
}

const grafana = `{
  "receiver": "tocsin", "status": "firing", "orgId": 1, "version": "1", "groupKey": "{}/{team=\"db\"}:{alertname=\"High load\"}", "truncatedAlerts": 0,
  "title": "[FIRING:2] High load (Prod)", "state": "alerting", "message": "**Firing**\n\nValue: A=95.2",
  "groupLabels": {"alertname": "High load"}, "commonLabels": {"alertname": "High load", "grafana_folder": "Prod"}, "commonAnnotations": {},
  "externalURL": "https://grafana.example.com/",
  "alerts": [
    {"status": "firing", "labels": {"alertname": "High load", "grafana_folder": "Prod", "severity": "critical", "host": "db-1"},
     "annotations": {"summary": "Load of db-1 is high", "description": "above 90", "runbook_url": "https://example.com/rb"},
     "startsAt": "2026-11-29T04:00:00+02:00", "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "https://grafana.example.com/alerting/grafana/abc/view",
     "fingerprint": "c6eadffa33fcdf37", "silenceURL": "https://grafana.example.com/alerting/silence/new", "imageURL": "https://grafana.example.com/i.png", "dashboardURL": "https://grafana.example.com/d/x",
     "panelURL": "https://grafana.example.com/d/x?viewPanel=1", "values": {"A": 95.2, "C": 1}, "valueString": "[ var='A' value=95.2 ]"},
    {"status": "STATUS", "labels": {"alertname": "High load", "grafana_folder": "Prod", "severity": "warning", "host": "db-2"}, "annotations": {},
     "startsAt": "2026-11-29T04:00:00+02:00", "endsAt": "0001-01-01T00:00:00Z", "fingerprint": "ab", "values": null}
  ]}`

func TestGrafanaMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	body := strings.Replace(grafana, "STATUS", "firing", 1)
	r := w.send("graf", body)[0]
	inc := w.incident(r.IncidentID)
	if inc.Topic != "alert.high_load.critical.prod" || inc.Title != "High load" || inc.Firing != 2 || inc.Key != `graf: {}/{team="db"}:{alertname="High load"}` {
		t.Errorf("%+v", inc)
	}
	s := w.snapshot(r.IncidentID)
	got := map[string]string{}
	for _, l := range s.Links {
		got[l.Title] = l.URL
	}
	want := map[string]string{
		"Runbook": "https://example.com/rb", "Panel": "https://grafana.example.com/d/x?viewPanel=1", "Dashboard": "https://grafana.example.com/d/x",
		"Image": "https://grafana.example.com/i.png", "Source": "https://grafana.example.com/alerting/grafana/abc/view", "Silence": "https://grafana.example.com/alerting/silence/new", "Grafana": "https://grafana.example.com/",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The values and Grafana's own title and message are others by now.
	w.send("graf", strings.NewReplacer("95.2", "96.1", "FIRING:2", "FIRING:3").Replace(body))
	if after := w.incident(r.IncidentID); after.Revision != inc.Revision || after.Sequence != inc.Sequence {
		t.Errorf("a re-send is news: %+v", after)
	}
	if other := w.send("graf", strings.Replace(body, `"orgId": 1`, `"orgId": 2`, 1))[0]; other.IncidentID == r.IncidentID {
		t.Error("another organisation's alerts are in it")
	}
	ended := strings.ReplaceAll(strings.Replace(body, "STATUS", "resolved", 1), `"status": "firing", "labels"`, `"status": "resolved", "labels"`)
	if got := w.send("graf", ended)[0]; got.State != message.Resolved {
		t.Errorf("%+v", got)
	}
}

func TestGenericMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	r := w.send("ci", `{"repo": "shop", "branch": "main", "result": "broken", "log": "line 1", "number": 17, "url": "https://ci.example.com/17"}`)[0]
	inc := w.incident(r.IncidentID)
	if inc.Topic != "alert.build.high.shop" || inc.Title != "shop broken" || inc.Key != "ci: shop" {
		t.Errorf("%+v", inc)
	}
	s := w.snapshot(r.IncidentID)
	if diff := cmp.Diff(map[string]string{"repo": "shop", "branch": "main", "number": "17"}, s.Labels); diff != "" || s.Text != "line 1" || len(s.Links) != 1 || s.Links[0] != (message.Link{Title: "Build", URL: "https://ci.example.com/17"}) {
		t.Errorf("%s %+v", diff, s)
	}
	got := w.send("ci", `{"repo": "shop", "branch": "main", "result": "ok", "number": 17}`)[0]
	if got.IncidentID != r.IncidentID || got.State != message.Resolved {
		t.Errorf("%+v", got)
	}
}

func TestGenericMessageOfSeveral(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	m := w.read("many", `{"items": [
		{"name": "One", "id": 1234567890123456789, "active": true, "since": 1796000000, "labels": {"severity": "critical", "alertname": "one", "n": 1, "nested": {"a": [1]}, "none": null}, "links": ["https://a.example.com", {"title": "B", "url": "https://b.example.com"}]},
		{"id": 2},
		{"name": "Three", "active": "perhaps"},
		{"name": ["Four"]},
		{"name": "Five", "since": "yesterday"},
		{"name": "Six", "labels": "none"},
		7,
		{"name": "Eight", "active": false, "until": "2026-01-05T09:00:00Z"}]}`)
	var wrong []string
	for _, e := range m.Wrong {
		wrong = append(wrong, e.Field)
	}
	if diff := cmp.Diff([]string{"alerts[1].title", "alerts[2].status", "alerts[3].title", "alerts[4].starts_at", "alerts[5].labels", "alerts[6].title"}, wrong); diff != "" {
		t.Errorf("%s %v", diff, m.Wrong)
	}
	if len(m.Groups) != 2 || m.Alerts != 2 {
		t.Fatalf("%+v", m)
	}
	a := m.Groups[0].Alerts[0]
	if a.Topic() != "alert.one.critical.none" || a.Fingerprint != "1234567890123456789" || a.Labels["n"] != "1" || a.Labels["nested"] != `{"a":[1]}` || len(a.Labels) != 4 || len(a.Links) != 2 || a.StartsAt.Unix() != 1796000000 {
		t.Errorf("%+v", a)
	}
	if b := m.Groups[1].Alerts[0]; b.Topic() != "alert.many.none.none" || b.Firing || b.EndsAt.IsZero() {
		t.Errorf("the name of the source stands for what is not known: %+v", b)
	}
	for _, bad := range []string{`{}`, `{"items": {}}`, `[`, `{} {}`, `7`} {
		var wrong *intake.InputError
		if _, err := intake.Read(w.file, w.file.Sources["many"], []byte(bad)); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestNativeMessageOfASource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	if got := w.incident(w.send("own", `{"kind": "disk", "labels": {"team": "db"}}`)[0].IncidentID); got.Topic != "alert.disk.high.db" {
		t.Errorf("the file fills in what is missing: %s", got.Topic)
	}
	if got := w.incident(w.send("own", `{"kind": "disk", "criticality": "info", "job": "x"}`)[0].IncidentID); got.Topic != "alert.disk.info.x" {
		t.Errorf("and nothing else: %s", got.Topic)
	}
	for bad, field := range map[string]string{
		`{}`: "kind", `{"kind": "a", "status": "odd"}`: "status", `{"kind": "a", "labels": {"a": 1}}`: "labels", `{"kind": "a", "colour": "red"}`: "body",
		`{"kind": "a", "job": "_tocsin"}`: "job", `[]`: "body", `{"kind": "a", "notify": ["nobody"]}`: "notify[0]",
	} {
		var wrong *intake.InputError
		if _, err := intake.Read(w.file, w.file.Sources["own"], []byte(bad)); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Whatever is wrong is named by where it stands in the message.
func TestWrongMessagesNameTheField(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	for _, c := range []struct{ source, body, field string }{
		{"am-east", `{"alerts": {}}`, "alerts"},
		{"am-east", `{"alerts": [{"status": "firing"}, {"status": "firing", "labels": ["a"]}]}`, "alerts[1].labels"},
		{"am-east", `{"alerts": [{"status": "firing", "labels": {"a": 1}}]}`, "alerts[0].labels"},
		{"am-east", `{"alerts": [{"status": "firing", "startsAt": "now"}]}`, "alerts[0].startsAt"},
		{"graf", `{"alerts": [{"status": 5}]}`, "alerts[0].status"},
		{"graf", `{"truncatedAlerts": "many", "alerts": []}`, "truncatedAlerts"},
		{"graf", `{"status": "firing"}`, "alerts"},
		{"prom", `{}`, "body"},
		{"prom", `[{"labels": {"a": "b"}}, {"labels": {"a": 2}}, 3]`, "alerts[1].labels"},
		{"prom", `[{"labels": {"alertname": "a", "job": "_tocsin"}}]`, "alerts[0].job"},
		{"prom", `[{"labels": {"alertname": "a"}, "endsAt": 5}]`, "alerts[0].endsAt"},
	} {
		m, err := intake.Read(w.file, w.file.Sources[c.source], []byte(c.body))
		var wrong *intake.InputError
		if !errors.As(err, &wrong) && len(m.Wrong) > 0 {
			wrong = m.Wrong[0]
		}
		if wrong == nil || !strings.HasPrefix(wrong.Field, c.field) || wrong.Message == "" {
			t.Errorf("%s, %s: %v", c.source, c.body, wrong)
		}
	}
}
