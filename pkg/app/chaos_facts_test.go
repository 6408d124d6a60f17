package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// chaosFacts is what the database says in the end.
type chaosFacts struct {
	incidents  map[string]chaosIncident // by key
	deliveries map[string]chaosDelivery // by id
	parts      map[string][]string      // ids of the deliveries, by incident
	attempts   map[string]chaosAttempt  // by id
	history    map[string][]chaosAttempt
	timeline   map[string][]string // by incident: what its thread tells, in order
}

type chaosIncident struct {
	ID, Key, State            string
	Count, Sequence, Revision int
}

type chaosDelivery struct {
	ID, Incident, Kind, Notifier, Target, State, Reason string
	Effect, Desired, Applied, Attempts                  int
	CardID                                              string
	Reference                                           delivery.Reference
	Clean                                               bool // no lease, no open attempt, no next time
}

func (d chaosDelivery) slack() bool {
	return strings.HasSuffix(d.Notifier, "slack") || strings.HasPrefix(d.Notifier, "slack")
}

type chaosAttempt struct {
	ID, Delivery                                  string
	Number, Effect, Revision                      int
	Key, Operation, Address, Worker, Token        string
	Started                                       time.Time
	Finished                                      *time.Time
	Outcome, Evidence, ClosedBy, Reason, LateSaid string
	LateAt                                        *time.Time
	Reference                                     delivery.Reference
	LateReference                                 delivery.Reference
}

// may says that the attempt may have reached the chat: there is no proof that it did not.
func (a chaosAttempt) may() bool { return a.Evidence == "possibly_sent" || a.Evidence == "answered" }

func (a chaosAttempt) String() string {
	finished := "open"
	if a.Finished != nil {
		finished = a.Finished.Format("15:04:05.000")
	}
	return fmt.Sprintf("#%d effect %d %s rev %d %s..%s %s/%s by %s %q late %q worker %s token %s", a.Number, a.Effect, a.Operation, a.Revision,
		a.Started.Format("15:04:05.000"), finished, a.Outcome, a.Evidence, a.ClosedBy, a.Reason, a.LateSaid, a.Worker, a.Token)
}

func readChaosFacts(t *testing.T, ctx context.Context, db *pgxpool.Pool) *chaosFacts {
	t.Helper()
	f := &chaosFacts{incidents: map[string]chaosIncident{}, deliveries: map[string]chaosDelivery{}, parts: map[string][]string{}, attempts: map[string]chaosAttempt{},
		history: map[string][]chaosAttempt{}, timeline: map[string][]string{}}
	read := func(query string, each func(pgx.Rows) error) {
		t.Helper()
		rows, err := db.Query(ctx, query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows); err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	read("select id::text, key, state, count, sequence, revision from incident", func(r pgx.Rows) error {
		var i chaosIncident
		err := r.Scan(&i.ID, &i.Key, &i.State, &i.Count, &i.Sequence, &i.Revision)
		f.incidents[i.Key] = i
		return err
	})
	read("select incident_id::text, text from timeline order by incident_id, sequence", func(r pgx.Rows) error {
		var id, text string
		err := r.Scan(&id, &text)
		f.timeline[id] = append(f.timeline[id], text)
		return err
	})
	read(`select id::text, incident_id::text, kind, notifier, target, state, reason, effect, desired, applied, attempts, coalesce(card_id::text, ''),
		coalesce(reference, '{}'), next_at is null and lease_token is null and open_attempt is null from delivery`, func(r pgx.Rows) error {
		var d chaosDelivery
		var ref []byte
		if err := r.Scan(&d.ID, &d.Incident, &d.Kind, &d.Notifier, &d.Target, &d.State, &d.Reason, &d.Effect, &d.Desired, &d.Applied, &d.Attempts,
			&d.CardID, &ref, &d.Clean); err != nil {
			return err
		}
		if err := json.Unmarshal(ref, &d.Reference); err != nil {
			return err
		}
		f.deliveries[d.ID] = d
		f.parts[d.Incident] = append(f.parts[d.Incident], d.ID)
		return nil
	})
	read(`select id::text, delivery_id::text, number, effect, revision, effect_key, operation, address, worker, lease_token::text, started_at, finished_at,
		coalesce(outcome, ''), coalesce(evidence, ''), coalesce(closed_by, ''), reason, coalesce(late_outcome, ''), late_at,
		coalesce(reference, '{}'), coalesce(late_reference, '{}') from attempt order by delivery_id, number`, func(r pgx.Rows) error {
		var a chaosAttempt
		var ref, late []byte
		if err := r.Scan(&a.ID, &a.Delivery, &a.Number, &a.Effect, &a.Revision, &a.Key, &a.Operation, &a.Address, &a.Worker, &a.Token, &a.Started,
			&a.Finished, &a.Outcome, &a.Evidence, &a.ClosedBy, &a.Reason, &a.LateSaid, &a.LateAt, &ref, &late); err != nil {
			return err
		}
		if err := json.Unmarshal(ref, &a.Reference); err != nil {
			return err
		}
		if err := json.Unmarshal(late, &a.LateReference); err != nil {
			return err
		}
		f.attempts[a.ID] = a
		f.history[a.Delivery] = append(f.history[a.Delivery], a)
		return nil
	})
	return f
}

// of finds an incident's deliveries of a kind, through one notifier.
func (f *chaosFacts) of(incident, kind, notifier string) []chaosDelivery {
	var out []chaosDelivery
	for _, id := range f.parts[incident] {
		if d := f.deliveries[id]; d.Kind == kind && d.Notifier == notifier {
			out = append(out, d)
		}
	}
	return out
}

// explain tells a delivery's history, for a failure.
func (f *chaosFacts) explain(id string) string {
	d := f.deliveries[id]
	lines := []string{fmt.Sprintf("  delivery %s: %s through %s is %s (%s), effect %d, applied %d of %d, reference %+v", id, d.Kind, d.Notifier, d.State, d.Reason, d.Effect, d.Applied, d.Desired, d.Reference)}
	for _, a := range f.history[id] {
		lines = append(lines, "    "+a.String())
	}
	return strings.Join(lines, "\n")
}

// checkHistory checks what the rows say by themselves.
func (f *chaosFacts) checkHistory(blame func(string, ...any)) {
	for id, d := range f.deliveries {
		if !d.Clean {
			blame("a delivery is not at rest:\n%s", f.explain(id))
		}
		if len(f.history[id]) != d.Attempts {
			blame("a delivery counts %d attempts and has %d rows:\n%s", d.Attempts, len(f.history[id]), f.explain(id))
		}
		for i, a := range f.history[id] {
			switch {
			case a.Outcome == "" || a.Finished == nil:
				blame("an attempt was left open:\n%s", f.explain(id))
			case a.ClosedBy == "takeover" && a.Outcome != "unknown":
				blame("a takeover closed an attempt as %s:\n%s", a.Outcome, f.explain(id))
			case a.LateSaid != "" && a.ClosedBy != "takeover" && a.ClosedBy != "reconcile":
				blame("late evidence on an attempt whose worker kept its lease:\n%s", f.explain(id))
			}
			if i == 0 {
				continue
			}
			before := f.history[id][i-1]
			if before.Finished != nil && a.Started.Before(*before.Finished) {
				blame("attempt #%d began before #%d was closed:\n%s", a.Number, before.Number, f.explain(id))
			}
			// The heart of it: an effect is only tried again after proof that it did not happen, or in the knowledge that it may have.
			if a.Key == before.Key && a.Operation == before.Operation && a.Operation != "edit" && before.Outcome == "sent" {
				blame("attempt #%d repeats an effect that was sent:\n%s", a.Number, f.explain(id))
			}
		}
	}
	for id := range f.history {
		if _, ok := f.deliveries[id]; !ok {
			blame("attempts of a delivery that is not there: %s", id)
		}
	}
}

// checkEnds checks that each alert is one incident, that each incident has what its routes promise, and that all of it
// stands where its fate says.
func (f *chaosFacts) checkEnds(alerts []chaosAlert, accepted map[string]string, blame func(string, ...any)) {
	if len(f.incidents) != len(alerts) {
		blame("%d alerts made %d incidents", len(alerts), len(f.incidents))
	}
	for _, a := range alerts {
		i, ok := f.incidents[a.Key]
		switch {
		case !ok || i.ID != accepted[a.Key]:
			blame("alert %s was accepted as incident %q, and there is %+v", a.Key, accepted[a.Key], i)
			continue
		case i.Count != 1:
			blame("alert %s fired once and is counted %d times", a.Key, i.Count)
		case i.State != a.ends():
			blame("incident of %s is %s, its fate was to be %s", a.Key, i.State, a.fate)
		}
		want := map[string]string{"ops-slack": "card", "slack-dm": "page"}
		if a.both() {
			want["ops-telegram"], want["telegram-dm"] = "card", "page"
		}
		for notifier, kind := range want {
			f.checkEnd(a, i, kind, notifier, blame)
			if kind == "card" {
				f.checkEnd(a, i, "thread", notifier, blame)
			}
		}
	}
	for id, d := range f.deliveries {
		if !slices.Contains([]string{"sent", "canceled"}, d.State) {
			blame("a delivery ended as %s:\n%s", d.State, f.explain(id))
		}
	}
}

func (f *chaosFacts) checkEnd(a chaosAlert, i chaosIncident, kind, notifier string, blame func(string, ...any)) {
	ds := f.of(i.ID, kind, notifier)
	if len(ds) != 1 {
		blame("alert %s has %d deliveries of kind %s through %s", a.Key, len(ds), kind, notifier)
		return
	}
	d := ds[0]
	switch {
	case d.State == "canceled" && kind == "page" && a.fate == fateAtOnce && d.Reason == "resolved" && d.Reference == (delivery.Reference{}):
	case d.State != "sent":
		blame("alert %s (%s): not sent:\n%s", a.Key, a.fate, f.explain(d.ID))
	case d.Applied != d.Desired:
		blame("alert %s (%s): what it shows is not the newest:\n%s", a.Key, a.fate, f.explain(d.ID))
	case kind == "thread" && d.Applied != i.Sequence:
		blame("alert %s (%s): the thread tells %d of %d events:\n%s", a.Key, a.fate, d.Applied, i.Sequence, f.explain(d.ID))
	case kind == "card" && d.Applied != i.Revision:
		blame("alert %s (%s): the card shows revision %d of %d:\n%s", a.Key, a.fate, d.Applied, i.Revision, f.explain(d.ID))
	}
}
