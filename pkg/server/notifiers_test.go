package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
)

func (w *world) notifiers() map[string]api.Notifier {
	w.t.Helper()
	status, _, raw := w.call("eye", http.MethodGet, "/v1/notifiers", "")
	var l api.List[api.Notifier]
	if err := json.Unmarshal(raw, &l); err != nil || status != http.StatusOK {
		w.t.Fatalf("%d %s", status, raw)
	}
	all := map[string]api.Notifier{}
	last := ""
	for _, n := range l.Items {
		if n.Name <= last {
			w.t.Errorf("%s stands behind %s", n.Name, last)
		}
		all[n.Name], last = n, n.Name
	}
	return all
}

func TestNotifiersAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file.Notifiers["off"] = config.Notifier{Name: "off", Type: "webhook", URL: "https://h/secret-path", Off: true}
	all := w.notifiers()
	if len(all) != 4 {
		t.Fatalf("%+v", all)
	}
	ops, dm, off := all["ops-slack"], all["slack-dm"], all["off"]
	if ops.Type != "slack" || ops.Direct || ops.Off || ops.State != api.NotifierOK || ops.Waiting != 0 || ops.Breaker != nil || ops.Pauses == nil {
		t.Errorf("%+v", ops)
	}
	if !dm.Direct || dm.Account != ops.Account || dm.Account == off.Account || dm.Account == all["ops-telegram"].Account {
		t.Errorf("%+v", dm)
	}
	if !off.Off || off.State != api.NotifierOff {
		t.Errorf("%+v", off)
	}
	_, _, raw := w.call("eye", http.MethodGet, "/v1/notifiers", "")
	for _, secret := range []string{"xoxb", "secret", "1:a"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("the list tells %q: %s", secret, raw)
		}
	}
	w.call("in", http.MethodPost, "/v1/alerts", `{"kind": "disk_full"}`)
	if got := w.notifiers()["ops-slack"].Waiting; got != 2 { // a card and its thread
		t.Errorf("%d wait", got)
	}
	if status, _, _ := w.call("in", http.MethodGet, "/v1/notifiers", ""); status != http.StatusForbidden {
		t.Errorf("a token that may send alerts only: %d", status)
	}
}

func TestNotifiersAreTested(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file.Notifiers["off"] = config.Notifier{Name: "off", Type: "slack", Token: "t", Channel: "C1", Off: true}
	for name, c := range map[string]struct {
		token, notifier, body string
		status                int
		says                  string
	}{
		"a place":                    {"hand", "ops-slack", "", http.StatusAccepted, ""},
		"a place, an empty body":     {"root", "ops-telegram", "{}", http.StatusAccepted, ""},
		"a person":                   {"hand", "slack-dm", `{"to": "user:ana"}`, http.StatusAccepted, ""},
		"people, without whom":       {"hand", "slack-dm", "{}", http.StatusUnprocessableEntity, "say to whom"},
		"a place, with whom":         {"hand", "ops-slack", `{"to": "user:ana"}`, http.StatusUnprocessableEntity, "place of its own"},
		"nobody of the file":         {"hand", "slack-dm", `{"to": "user:zoe"}`, http.StatusUnprocessableEntity, "no user zoe"},
		"off":                        {"hand", "off", "", http.StatusConflict, "The notifier off is off"},
		"unknown":                    {"hand", "nobody", "", http.StatusNotFound, "no notifier nobody"},
		"a token that may only look": {"eye", "ops-slack", "", http.StatusForbidden, "operate"},
		"a field that is not there":  {"hand", "ops-slack", `{"whom": "user:ana"}`, http.StatusUnprocessableEntity, "whom"},
	} {
		status, header, raw := w.call(c.token, http.MethodPost, "/v1/notifiers/"+c.notifier+"/test", c.body)
		if status != c.status {
			t.Errorf("%s: %d %s", name, status, raw)
			continue
		}
		if status != http.StatusAccepted {
			if header.Get("Content-Type") != "application/problem+json" || !strings.Contains(string(raw), c.says) || strings.Contains(string(raw), "send again") {
				t.Errorf("%s: %s", name, raw)
			}
			continue
		}
		var tried api.Tried
		if err := json.Unmarshal(raw, &tried); err != nil {
			t.Fatal(err)
		}
		status, _, raw = w.call("eye", http.MethodGet, "/v1/deliveries/"+tried.DeliveryID, "")
		var d api.Delivery
		if err := json.Unmarshal(raw, &d); err != nil || status != http.StatusOK || d.Notifier != c.notifier || d.State != "pending" || d.Kind != "notice" {
			t.Errorf("%s: %d %s", name, status, raw)
		}
	}
	w.stopping.Store(true)
	if status, _, raw := w.call("hand", http.MethodPost, "/v1/notifiers/ops-slack/test", ""); status != http.StatusServiceUnavailable || !strings.Contains(string(raw), "not running") {
		t.Errorf("while stopping: %d %s", status, raw)
	}
}
