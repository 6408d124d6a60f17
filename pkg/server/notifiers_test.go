package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/store"
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

// A pause is shown where it holds something up, and nowhere else.
func TestNotifiersTellWhatHoldsThemUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file.Notifiers["db-slack"] = config.Notifier{Name: "db-slack", Type: "slack", Token: "xoxb-1", Channel: "C0DB"}
	w.file.Notifiers["off"] = config.Notifier{Name: "off", Type: "slack", Token: "xoxb-1", Channel: "C0OFF", Off: true}
	slack, telegram := w.file.Notifiers["ops-slack"].Account(), w.file.Notifiers["ops-telegram"].Account()
	rest := func(account, destination string) {
		t.Helper()
		p := store.Pause{Key: account + "/" + destination, Scope: store.ScopeDestination, Account: account, Notifier: "any", Destination: destination, Reason: "destination:is_archived", Sentence: "unarchive it"}
		if err := w.store.Rest(t.Context(), p, 15*time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	rest(slack, "C0OPS")
	rest(slack, "U0ANA")
	if err := w.store.Rest(t.Context(), store.Pause{Key: "look", Scope: store.ScopeLookUp, Account: telegram, Notifier: "ops-telegram", Reason: "rate_limited"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	all := w.notifiers()
	if ops := all["ops-slack"]; ops.State != api.NotifierPaused || len(ops.Pauses) != 1 || ops.Pauses[0].Destination != "C0OPS" || ops.Pauses[0].Reason != "destination:is_archived" ||
		ops.Pauses[0].Sentence != "unarchive it" || time.Until(ops.Pauses[0].Until).Round(time.Minute) != 15*time.Minute {
		t.Errorf("%+v", ops)
	}
	if dm := all["slack-dm"]; dm.State != api.NotifierPaused || len(dm.Pauses) != 1 || dm.Pauses[0].Destination != "U0ANA" {
		t.Errorf("%+v", dm)
	}
	for _, name := range []string{"db-slack", "ops-telegram"} {
		if n := all[name]; n.State != api.NotifierOK || len(n.Pauses) != 0 || n.Breaker != nil {
			t.Errorf("%s: %+v", name, n)
		}
	}
	// The credentials break: all with the same ones stand still, the others go on. One of another file does not count.
	open := func(account, checksum string) {
		t.Helper()
		p := store.Pause{Key: account + "@" + checksum, Account: account, Notifier: "ops-slack", Checksum: checksum, Reason: "account:token_revoked", Code: "token_revoked", Sentence: "reinstall the app"}
		if _, err := w.store.OpenBreaker(t.Context(), p, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	open(slack, w.file.Checksum)
	open(telegram, "another")
	all = w.notifiers()
	for _, name := range []string{"ops-slack", "slack-dm", "db-slack"} {
		n := all[name]
		if b := n.Breaker; n.State != api.NotifierBroken || b == nil || b.Code != "token_revoked" || b.Reason != "account:token_revoked" || b.Sentence != "reinstall the app" || b.Since.IsZero() || b.NextProbeAt == nil {
			t.Errorf("%s: %+v", name, n)
		}
	}
	if n := all["ops-telegram"]; n.State != api.NotifierOK || n.Breaker != nil {
		t.Errorf("%+v", n)
	}
	if n := all["off"]; n.State != api.NotifierOff {
		t.Errorf("%+v", n)
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
