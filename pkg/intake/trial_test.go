package intake_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

func TestTrialMakesOneDeliveryOfItsOwn(t *testing.T) {
	t.Parallel()
	by := intake.Actor{ID: "token:ops", Name: "ops"}
	for name, c := range map[string]struct{ notifier, to, kind, target string }{
		"a channel":          {"ops-slack", "", "notice", "channel"},
		"a Slack webhook":    {"hook-slack", "", "notice", "url"},
		"a webhook":          {"audit", "", "event", "url"},
		"a log":              {"team-log", "", "event", "log"},
		"a person":           {"slack-dm", "user:cho", "notice", "user:cho"},
		"whoever is on call": {"slack-dm", "schedule:primary", "notice", "schedule:primary"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(f *config.File) {
				f.Notifiers["team-log"] = config.Notifier{Name: "team-log", Type: "log", Path: "/x"}
			})
			id, err := w.in.Trial(t.Context(), c.notifier, c.to, by)
			if err != nil {
				t.Fatal(err)
			}
			d, err := w.st.ReadDelivery(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if d.State != "pending" || d.Kind != c.kind || d.Notifier != c.notifier || d.Target != c.target || d.IncidentID != "" || d.ExpiresAt == nil || d.ExpiresAt.Sub(d.CreatedAt).Round(time.Second) != 10*time.Minute {
				t.Errorf("%+v", d)
			}
			w.mu.Lock()
			if len(w.woke) != 1 {
				t.Errorf("the worker was woken %d times", len(w.woke))
			}
			w.mu.Unlock()
			body := one[[]byte](w, "select c.body from content c join delivery d on d.content_id = c.id")
			var title string
			if c.kind == "event" {
				var e struct {
					Type string
					Data struct{ Notifier, Title string }
				}
				if err := json.Unmarshal(body, &e); err != nil || e.Type != intake.EventTrial || e.Data.Notifier != c.notifier {
					t.Errorf("%s, %v", body, err)
				}
				title = e.Data.Title
			} else {
				var s card.Snapshot
				if err := json.Unmarshal(body, &s); err != nil {
					t.Errorf("%s, %v", body, err)
				}
				title = card.Notice(s, card.Options{}).Title
			}
			if title != "Test of the notifier "+c.notifier+", asked for by ops" {
				t.Errorf("it says %q", title)
			}
			if got := one[string](w, "select actor || ' ' || action || ' ' || object || ' ' || detail from audit"); got != "token:ops notifier_test "+c.notifier+" "+c.to {
				t.Errorf("the audit trail says %q", got)
			}
		})
	}
}

func TestTrialThatWouldReachNobodyIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		f.Notifiers["off"] = config.Notifier{Name: "off", Type: "slack", Token: "t", Channel: "C1", Off: true}
		f.Schedules = append(f.Schedules, oncall.Schedule{ID: "empty", Zone: time.UTC})
	})
	var wrong *intake.InputError
	var impossible *intake.ImpossibleError
	input := func(err error) bool { return errors.As(err, &wrong) && wrong.Field == "to" }
	reason := func(want string) func(error) bool {
		return func(err error) bool {
			return errors.As(err, &impossible) && impossible.Reason == want && impossible.Sentence != "" && !strings.Contains(impossible.Sentence, "send again")
		}
	}
	for name, c := range map[string]struct {
		notifier, to string
		want         func(error) bool
	}{
		"unknown":              {"nobody", "", func(err error) bool { return errors.Is(err, intake.ErrNoNotifier) }},
		"off":                  {"off", "", reason("notifier_off")},
		"people, without whom": {"slack-dm", "", input},
		"people, misspelt":     {"slack-dm", "ana", input},
		"people, empty":        {"slack-dm", "user:", input},
		"a place, with whom":   {"ops-slack", "user:ana", input},
		"no such user":         {"slack-dm", "user:zoe", input},
		"no account":           {"telegram-dm", "user:cho", reason("no_linked_account")},
		"no such schedule":     {"slack-dm", "schedule:night", input},
		"nobody on call":       {"slack-dm", "schedule:empty", reason("nobody_on_call")},
	} {
		if id, err := w.in.Trial(t.Context(), c.notifier, c.to, intake.Actor{ID: "token:ops", Name: "ops"}); !c.want(err) || id != uuid.Nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := one[int](w, "select count(*) from delivery"); n != 0 {
		t.Errorf("%d deliveries were made", n)
	}
}
