package intake_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func kinds(ds []delivery.Delivery) []string {
	var out []string
	for _, d := range ds {
		out = append(out, fmt.Sprintf("%s %s %s %s", d.Kind, d.Notifier, d.Target, d.State))
	}
	return out
}

func TestAnAlertBecomesCardThreadEventAndPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.accept(disk("critical"))
	if !r.Opened || r.State != message.Open || r.AlertID == uuid.Nil {
		t.Fatalf("%+v", r)
	}
	want := []string{
		"card ops-slack channel pending", "thread ops-slack channel pending", "event audit url pending",
		"page slack-dm schedule:primary pending", "page telegram-dm schedule:primary pending",
	}
	ds := w.deliveries(r.IncidentID)
	if diff := cmp.Diff(want, kinds(ds)); diff != "" {
		t.Error(diff)
	}
	if len(r.Deliveries) != len(want) || r.Deliveries[0].ID != ds[0].ID {
		t.Errorf("the answer names %v", r.Deliveries)
	}
	if ds[1].CardID != ds[0].ID {
		t.Error("the thread does not know its card")
	}
	if d := ds[3]; d.WaitUntil.IsZero() || d.WaitUntil.Sub(d.CreatedAt) > 6*time.Second {
		t.Errorf("the first page waits for the card until %s, made at %s", d.WaitUntil, d.CreatedAt)
	}
	if !ds[4].WaitUntil.IsZero() {
		t.Error("the page for later waits for the card")
	}
	if diff := cmp.Diff([]string{"opened", "paged"}, w.timeline(r.IncidentID)); diff != "" {
		t.Error(diff)
	}
	inc := w.incident(r.IncidentID)
	if inc.Revision != 1 || ds[0].Desired != 1 || inc.Sequence != 2 || ds[1].Desired != 2 || inc.Count != 1 || inc.Firing != 1 {
		t.Errorf("%+v", inc)
	}
	var states []string
	for _, s := range w.steps(r.IncidentID) {
		states = append(states, fmt.Sprintf("%d/%d %s", s.Round, s.Step, s.State))
	}
	if diff := cmp.Diff([]string{"1/0 fired", "1/1 due", "2/0 due", "2/1 due", "2/-1 due"}, states); diff != "" {
		t.Error(diff)
	}
	if len(w.woke) != 1 {
		t.Errorf("the worker was nudged %d times", len(w.woke))
	}
	var event struct {
		Type string
		Data struct{ Incident struct{ ID, State string } }
	}
	if err := json.Unmarshal(one[[]byte](w, "select c.body from delivery d join content c on c.id = d.content_id where d.kind = 'event'"), &event); err != nil {
		t.Fatal(err)
	}
	if event.Type != "incident.opened" || event.Data.Incident.ID != r.IncidentID.String() {
		t.Errorf("the event is %+v", event)
	}
}

func TestSameAlertOnTwoReplicasAtOnce(t *testing.T) { // D7
	t.Parallel()
	w := newWorld(t, nil)
	_, other := w.replica()
	again := disk("critical", "b", "2", "a", "1")
	again.Alerts[0].Text = "96 %"
	for round := range 20 {
		var start, done sync.WaitGroup
		start.Add(1)
		ids := make([]uuid.UUID, 2)
		for n, in := range []*intake.Intake{w.in, other} {
			done.Add(1)
			go func() {
				defer done.Done()
				g := disk("critical", "a", "1", "b", "2")
				if n == 1 {
					g = again
				}
				g.Key = fmt.Sprint("round ", round)
				start.Wait()
				r, err := in.Accept(t.Context(), g)
				if err != nil {
					t.Error(err)
				}
				ids[n] = r.IncidentID
			}()
		}
		start.Done()
		done.Wait()
		if ids[0] != ids[1] {
			t.Fatalf("two incidents: %v", ids)
		}
		inc := w.incident(ids[0])
		if inc.Count != 2 || inc.Firing != 1 {
			t.Errorf("count %d, firing %d, want 2 and 1", inc.Count, inc.Firing)
		}
		if cards := w.deliveries(inc.ID, delivery.Card); len(cards) != 1 || cards[0].Desired != inc.Revision {
			t.Errorf("cards: %v", kinds(cards))
		}
	}
}

func TestLabelsReorderedOrWordsChangedAreTheSameAlert(t *testing.T) { // D7
	t.Parallel()
	w := newWorld(t, nil)
	first := w.accept(disk("critical", "a", "1", "b", "2"))
	g := disk("critical", "b", "2", "a", "1")
	second := w.accept(g)
	if second.IncidentID != first.IncidentID || second.AlertID != first.AlertID || len(second.Deliveries) != 0 {
		t.Errorf("%+v after %+v", second, first)
	}
	inc := w.incident(first.IncidentID)
	if inc.Count != 2 || inc.Revision != 1 || inc.Sequence != 2 {
		t.Errorf("a re-send without a visible change: %+v", inc)
	}
	if len(w.woke) != 1 {
		t.Errorf("the worker was nudged %d times", len(w.woke))
	}
	g.Alerts[0].Text = "97 %"
	if third := w.accept(g); third.IncidentID != first.IncidentID {
		t.Error("another text makes another incident")
	}
	if inc := w.incident(first.IncidentID); inc.Count != 3 || inc.Revision != 2 || inc.Sequence != 2 {
		t.Errorf("a changed text is a new revision and no event: %+v", inc)
	}
	if s := w.snapshot(first.IncidentID); s.Text != "97 %" || s.Revision != 2 {
		t.Errorf("the card shows %q at revision %d", s.Text, s.Revision)
	}
}

func TestSameSummaryWithOtherLabelsIsAnotherAlert(t *testing.T) { // D8
	t.Parallel()
	w := newWorld(t, nil)
	a, b := disk("critical", "instance", "db-1"), disk("critical", "instance", "db-2")
	if w.accept(a).IncidentID == w.accept(b).IncidentID {
		t.Error("without a key they are two incidents")
	}
	a.Key, b.Key = "disks", "disks"
	one, two := w.accept(a), w.accept(b)
	if one.IncidentID != two.IncidentID || one.AlertID == two.AlertID {
		t.Errorf("with one key they are two alerts of one incident: %+v, %+v", one, two)
	}
	inc := w.incident(one.IncidentID)
	if inc.Firing != 2 || inc.Revision != 2 {
		t.Errorf("%+v", inc)
	}
	if s := w.snapshot(one.IncidentID); len(s.Alerts) != 2 || s.Labels["instance"] != "" {
		t.Errorf("the card shows %+v", s)
	}
	if diff := cmp.Diff([]string{"opened", "paged", "alert_firing"}, w.timeline(one.IncidentID)); diff != "" {
		t.Error(diff)
	}
}

func TestOneNotifierNamedThrice(t *testing.T) { // A2
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		f.Routes = append(f.Routes, config.Route{Match: pattern(t, "#"), Notify: []string{"ops-slack"}})
	})
	g := disk("warning")
	g.Alerts[0].Notify = []string{"ops-slack"}
	if cards := w.deliveries(w.accept(g).IncidentID, delivery.Card); len(cards) != 1 {
		t.Errorf("%d cards", len(cards))
	}
}

func TestResolvedForSomethingNeverAnnounced(t *testing.T) { // D10
	t.Parallel()
	w := newWorld(t, nil)
	g := disk("critical")
	g.Alerts[0].Firing = false
	if r := w.accept(g); r.IncidentID != uuid.Nil || r.AlertID != uuid.Nil || len(r.Deliveries) > 0 {
		t.Errorf("%+v", r)
	}
	if n := one[int](w, "select (select count(*) from incident) + (select count(*) from delivery)"); n != 0 || len(w.woke) != 0 {
		t.Errorf("%d rows, nudged %d times", n, len(w.woke))
	}
}

func TestSourceResolves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.accept(disk("critical"))
	g := disk("critical")
	g.Alerts[0].Firing = false
	if got := w.accept(g); got.State != message.Resolved || got.IncidentID != r.IncidentID {
		t.Fatalf("%+v", got)
	}
	want := []string{
		"card ops-slack channel pending", "thread ops-slack channel pending", "event audit url pending",
		"page slack-dm schedule:primary canceled", "page telegram-dm schedule:primary canceled", "event audit url pending",
	}
	ds := w.deliveries(r.IncidentID)
	if diff := cmp.Diff(want, kinds(ds)); diff != "" {
		t.Error(diff)
	}
	inc := w.incident(r.IncidentID)
	if ds[0].Desired != inc.Revision || ds[1].Desired != inc.Sequence || inc.ResolvedBy != "source:native" || inc.Criticality != "critical" {
		t.Errorf("%+v", inc)
	}
	for _, s := range w.steps(r.IncidentID) {
		if s.State == "due" {
			t.Errorf("step %d/%d is still due", s.Round, s.Step)
		}
	}
	s := w.snapshot(r.IncidentID)
	if s.State != message.Resolved || s.ResolvedAt == nil || s.ResolvedAt.Before(s.OpenedAt) {
		t.Errorf("D3: the card shows %+v", s)
	}
	if again := w.accept(disk("critical")); again.IncidentID == r.IncidentID || !again.Opened {
		t.Error("firing anew is a new incident")
	}
}

func TestAnUnsentNoticeIsOvertakenByTheResolution(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.accept(disk("info"))
	w.resolve(r.IncidentID)
	want := []string{"notice hook-slack url canceled", "notice hook-slack url pending"}
	if diff := cmp.Diff(want, kinds(w.deliveries(r.IncidentID))); diff != "" {
		t.Error(diff)
	}
}

func TestReSendsAfterAPersonsResolve(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	started := time.Now().Add(-time.Minute)
	g := disk("critical")
	g.Alerts[0].StartsAt = started
	r := w.accept(g)
	w.resolve(r.IncidentID)
	if s := w.snapshot(r.IncidentID); s.Firing != 1 {
		t.Errorf("the card says that %d fire", s.Firing)
	}
	if got := w.accept(g); !got.Quiet || got.Opened || got.IncidentID != r.IncidentID || got.State != message.Resolved {
		t.Errorf("a re-send: %+v", got)
	}
	if inc := w.incident(r.IncidentID); inc.Count != 2 || inc.Revision != 2 {
		t.Errorf("a re-send is counted and not shown: %+v", inc)
	}
	storetest.MoveClock(t, w.url, 4*time.Hour)
	late := w.accept(g)
	if !late.Opened || late.IncidentID == r.IncidentID {
		t.Errorf("after reopen_after: %+v", late)
	}
	w.resolve(late.IncidentID)
	g.Alerts[0].Firing = false
	w.accept(g)
	if inc := w.incident(late.IncidentID); inc.Firing != 0 || inc.Resolved != 1 || inc.State != message.Resolved {
		t.Errorf("the source's own end is noted: %+v", inc)
	}
	if diff := cmp.Diff([]string{"opened", "paged", "resolved"}, w.timeline(late.IncidentID)); diff != "" {
		t.Error(diff)
	}
	g.Alerts[0].Firing, g.Alerts[0].StartsAt = true, time.Now()
	if anew := w.accept(g); !anew.Opened {
		t.Errorf("it began anew: %+v", anew)
	}
}

func TestALaterAlertBringsItsNotifiersAndRaisesTheCriticality(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	low, high := disk("warning", "n", "1"), disk("critical", "n", "2")
	low.Key, high.Key = "k", "k"
	r := w.accept(low)
	if ds := w.deliveries(r.IncidentID); len(ds) != 2 {
		t.Fatalf("%v", kinds(ds))
	}
	w.accept(high)
	want := []string{
		"card ops-slack channel pending", "thread ops-slack channel pending", "event audit url pending",
		"page slack-dm schedule:primary pending", "page telegram-dm schedule:primary pending",
	}
	if diff := cmp.Diff(want, kinds(w.deliveries(r.IncidentID))); diff != "" {
		t.Error(diff)
	}
	if inc := w.incident(r.IncidentID); inc.Criticality != "critical" {
		t.Errorf("criticality %s", inc.Criticality)
	}
	high.Alerts[0].Firing = false
	w.accept(high)
	if inc := w.incident(r.IncidentID); inc.Criticality != "warning" || inc.State != message.Open {
		t.Errorf("the highest firing one is %s, the incident is %s", inc.Criticality, inc.State)
	}
	high.Alerts[0].Firing = true
	w.accept(high)
	if pages := w.deliveries(r.IncidentID, delivery.Page); len(pages) != 2 {
		t.Errorf("an escalation runs once per incident: %v", kinds(pages))
	}
}

func TestAnAcknowledgedIncidentShowsANewAlertAndWakesNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	low, high := disk("warning", "n", "1"), disk("critical", "n", "2")
	low.Key, high.Key = "k", "k"
	r := w.accept(low)
	w.acknowledge(r.IncidentID)
	if got := w.accept(high); got.State != message.Acknowledged {
		t.Errorf("%+v", got)
	}
	if pages := w.deliveries(r.IncidentID, delivery.Page); len(pages) != 0 {
		t.Errorf("a page behind an acknowledgement: %v", kinds(pages))
	}
	s := w.snapshot(r.IncidentID)
	if s.State != message.Acknowledged || len(s.Alerts) != 2 || s.Criticality != "critical" {
		t.Errorf("the card shows %+v", s)
	}
}

func TestAnUnroutedAlertIsKeptAndLoud(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.accept(disk("odd"))
	if !r.Unrouted || r.IncidentID == uuid.Nil {
		t.Fatalf("%+v", r)
	}
	self := w.self("unrouted")
	if len(self) != 1 || self[0].Topic != "alert.unrouted.odd._tocsin" {
		t.Fatalf("self-alerts: %+v", self)
	}
	if cards := w.deliveries(self[0].ID, delivery.Card); len(cards) != 1 {
		t.Errorf("its deliveries: %v", kinds(cards))
	}
	if len(w.woke) != 1 {
		t.Error("nobody was nudged for the self-alert")
	}
	w.file.Routes = nil
	w.accept(disk("odder"))
	if self = w.self("unrouted"); len(self) != 2 {
		t.Errorf("%d self-alerts: an unrouted self-alert must not raise another", len(self))
	}
}

// An alert that nothing took is sent again by its source after the file was mended: then people hear of it, once.
func TestAnUnroutedAlertIsRoutedWhenItIsSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.accept(disk("odd"))
	again := w.accept(disk("odd"))
	if again.Unrouted || len(again.Deliveries) != 0 || again.IncidentID != r.IncidentID {
		t.Fatalf("a re-send that still nothing takes: %+v", again)
	}
	w.file.Routes = append(w.file.Routes, config.Route{Match: pattern(t, "alert.*.odd.#"), Notify: []string{"ops-slack"}, Escalate: "default"})
	if routed := w.accept(disk("odd")); routed.IncidentID != r.IncidentID || routed.Unrouted || len(w.woke) != 2 {
		t.Errorf("%+v, nudged %d times", routed, len(w.woke))
	}
	want := []string{
		"card ops-slack channel pending", "thread ops-slack channel pending",
		"page slack-dm schedule:primary pending", "page telegram-dm schedule:primary pending",
	}
	if diff := cmp.Diff(want, kinds(w.deliveries(r.IncidentID))); diff != "" {
		t.Error(diff)
	}
	if left := w.due(r.IncidentID); left == 0 {
		t.Error("its escalation does not run")
	}
	w.accept(disk("odd"))
	if got := w.deliveries(r.IncidentID); len(got) != len(want) {
		t.Errorf("the next re-send adds to it: %v", kinds(got))
	}
	w.resolve(r.IncidentID)
}

func TestWhatIntakeRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for field, change := range map[string]func(g *intake.Group){
		"job":        func(g *intake.Group) { g.Alerts[0].Job = "_Tocsin" },
		"key":        func(g *intake.Group) { g.Key = "_tocsin:unrouted:x" },
		"kind":       func(g *intake.Group) { g.Alerts[0].Kind = strings.Repeat("k", intake.MaxWord+1) },
		"labels.x":   func(g *intake.Group) { g.Alerts[0].Labels["x"] = strings.Repeat("v", intake.MaxLabelValue+1) },
		"links[0]":   func(g *intake.Group) { g.Alerts[0].Links = []message.Link{{URL: "javascript:alert(1)"}} },
		"notify[0]":  func(g *intake.Group) { g.Alerts[0].Notify = []string{"nobody"} },
		"notify[1]":  func(g *intake.Group) { g.Alerts[0].Notify = []string{"ops-slack", "slack-dm"} },
		"alerts[1].": func(g *intake.Group) { g.Alerts = append(g.Alerts, plan.Alert{Firing: true}) },
	} {
		g := disk("critical")
		change(&g)
		_, err := w.in.Accept(t.Context(), g)
		var wrong *intake.InputError
		if !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Field, field) || wrong.Message == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := one[int](w, "select count(*) from incident"); n != 0 {
		t.Errorf("%d incidents of refused alerts", n)
	}
}

func TestTextThatIsTooLongOrOddIsStored(t *testing.T) { // D6
	t.Parallel()
	w := newWorld(t, nil)
	g := disk("critical", "a_b*c[", "a < b & \"c\" <no value>")
	g.Alerts[0].Title = strings.Repeat("ü", 2000)
	g.Alerts[0].Text = "nul \x00 and \xff" + strings.Repeat("x", intake.MaxText)
	r := w.accept(g)
	s := w.snapshot(r.IncidentID)
	if s.Title != g.Alerts[0].Title {
		t.Errorf("the title has %d bytes", len(s.Title))
	}
	if s.Labels["a_b*c["] != "a < b & \"c\" <no value>" {
		t.Errorf("the labels are %q", s.Labels)
	}
	if !strings.HasPrefix(s.Text, "nul \uFFFD and \uFFFDxxx") || !strings.HasSuffix(s.Text, "…") {
		t.Errorf("the text begins %.20q", s.Text)
	}
	if n := one[int](w, "select length(text) from alert"); n != intake.MaxText {
		t.Errorf("%d characters of the text are stored", n)
	}
}
