package store_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// odd is text that a carelessly built statement, array or JSON would stumble over.
var odd = []string{
	`a < b & "c" <no value>`, `'; drop table delivery; --`, `$1 {} NULL {"a",null} \ \\ \x00 \u0000`, "tab\tand\nlines\r\n", "é日😀👨‍👩‍👧 \u202eltr", "NULL", `"`, `{`, `,`, strings.Repeat("long ", 50_000),
}

// Whatever text goes in comes out as it was.
func TestTextIsKeptLiterally(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	for range odd {
		s.add(inc, delivery.Page)
	}
	claimed := s.claim(alpha)
	var begin []store.Begun
	for i, c := range claimed {
		b := intent(c)
		b.Attempt.Address, b.Attempt.Key = odd[i], "key "+odd[i]
		begin = append(begin, b)
	}
	var finish []store.Finished
	begun := s.try(alpha, begin...)
	for i, c := range claimed {
		r := unknown
		r.Reason, r.Error, r.Answer, r.Code, r.Reference = odd[i], odd[i]+"!", odd[i]+"?", odd[i], delivery.Reference{Channel: odd[i]}
		finish = append(finish, ended(begun[c.ID], r))
	}
	s.end(alpha, finish...)
	for i, c := range claimed {
		r, a := s.row(c.ID), s.attempt(c.ID)
		if r.Reason != odd[i] || a.Reason != odd[i] || a.Address != odd[i] || a.Key != "key "+odd[i] || r.Doubt == nil || r.Doubt.Address != odd[i] || r.Doubt.Key != "key "+odd[i] {
			t.Errorf("%.40q came back as %.900s, %.900s", odd[i], pretty(r), pretty(a))
		}
		if n := get[int](s, "select count(*) from attempt where id = $1 and error = $2 and answer = $3 and provider_code = $4 and reference->>'channel' = $4", a.ID, odd[i]+"!", odd[i]+"?", odd[i]); n != 1 {
			t.Errorf("%.40q is not what the attempt keeps", odd[i])
		}
		again, err := s.Read(t.Context(), c.ID)
		if err != nil || again[c.ID].Doubt == nil || again[c.ID].Doubt.Address != odd[i] || again[c.ID].Reason != odd[i] {
			t.Errorf("%.40q is read as %.900s: %v", odd[i], pretty(again[c.ID]), err)
		}
	}

	labels := map[string]string{}
	for i, text := range odd {
		labels[fmt.Sprint(`"é\`, i)] = text
	}
	var alerts []store.Alert
	for i, text := range odd {
		ends := time.Date(2026, 3, 29, 2, 30, 0, 0, time.UTC)
		a := store.Alert{ID: store.NewID(), Fingerprint: fmt.Sprint(i), Topic: "alert.a.b.c", Criticality: "high", Status: "firing", Title: text, Text: text, Labels: labels,
			Links: []message.Link{{Title: text, URL: "https://example.com/?q=" + text}}, StartsAt: ends.Add(-time.Hour), Count: i + 1}
		if i%2 == 1 {
			a.EndsAt, a.Status, a.Labels, a.Links = &ends, "resolved", nil, nil
		}
		alerts = append(alerts, a)
	}
	s.tx(func(tx *store.Tx) error {
		if err := tx.PutAlerts(t.Context(), inc.ID, alerts); err != nil {
			return err
		}
		return tx.PutAlerts(t.Context(), inc.ID, alerts) // a re-send writes them over
	})
	s.tx(func(tx *store.Tx) error {
		for i, want := range alerts {
			got, ok, err := tx.Alert(t.Context(), inc.ID, want.Fingerprint)
			if err != nil || !ok {
				return fmt.Errorf("alert %d: %t, %w", i, ok, err)
			}
			if got.ID != want.ID || got.Title != want.Title || got.Text != want.Text || got.Status != want.Status || got.Count != want.Count || !got.StartsAt.Equal(want.StartsAt) ||
				!maps.Equal(got.Labels, want.Labels) && len(got.Labels)+len(want.Labels) > 0 || len(got.Links) != len(want.Links) || len(want.Links) == 1 && got.Links[0] != want.Links[0] {
				t.Errorf("alert %d came back as %.900s", i, pretty(got))
			}
			if (got.EndsAt == nil) != (want.EndsAt == nil) || got.EndsAt != nil && !got.EndsAt.Equal(*want.EndsAt) {
				t.Errorf("alert %d ended at %v, not at %v", i, got.EndsAt, want.EndsAt)
			}
		}
		return nil
	})
}

// Postgres takes neither NUL nor invalid UTF-8. Who writes cleans its text before; what slips through is refused with
// the class of codes by which the worker knows that trying again is no use, and takes nothing else down with it.
func TestPoisonedTextIsRefusedWhole(t *testing.T) {
	t.Parallel()
	for name, poison := range map[string]string{"NUL": "a\x00b", "no UTF-8": "a\xff\xfeb", "half a rune": "a\xe2\x82"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			s.add(inc, delivery.Page)
			s.add(inc, delivery.Page)
			var good, bad store.Begun
			for i, c := range s.claim(alpha) {
				if b := s.begin(alpha, c); i == 0 {
					good = b
				} else {
					bad = b
				}
			}
			const all = "select (select string_agg(to_jsonb(d)::text, ' ' order by id) from delivery d) || (select string_agg(to_jsonb(a)::text, ' ' order by id) from attempt a)"
			before := get[string](s, all)
			r := failed
			r.Error = poison
			if _, err := s.Finish(t.Context(), alpha, []store.Finished{ended(good, sent), ended(bad, r)}); !strings.HasPrefix(code(err), "22") {
				t.Errorf("a batch with poison in it: %v", err)
			}
			if after := get[string](s, all); after != before {
				t.Errorf("part of a refused batch was written: %s", after)
			}
			s.finish(alpha, good, sent) // each for itself
			s.finish(alpha, bad, failed)

			incident, content := get[string](s, "select string_agg(to_jsonb(i)::text, '') from incident i"), get[int](s, "select count(*) from content")
			for what, write := range map[string]func(tx *store.Tx) error{
				"an alert": func(tx *store.Tx) error {
					return tx.PutAlerts(t.Context(), inc.ID, []store.Alert{{ID: store.NewID(), IncidentID: inc.ID, Fingerprint: "f", Topic: "t", Criticality: "high", Status: "firing", Title: poison, StartsAt: tx.Now()}})
				},
				"a delivery": func(tx *store.Tx) error {
					return tx.AddDeliveries(t.Context(), store.NewDelivery{ID: store.NewID(), IncidentID: inc.ID, ContentID: inc.ID, Kind: delivery.Page, Notifier: ops, Target: poison})
				},
				"a timeline entry": func(tx *store.Tx) error {
					return tx.AddTimeline(t.Context(), inc.ID, card.Entry{Sequence: 1, Actor: "ana", Type: "note", Text: poison})
				},
				"a decision": func(tx *store.Tx) error {
					return tx.AddDecision(t.Context(), bad.Delivery, "ana", delivery.CancelIt, poison)
				},
			} {
				err := s.InTx(t.Context(), func(tx *store.Tx) error {
					inc := inc
					inc.Title, inc.Revision = "written before", 9
					return errors.Join(tx.SaveIncident(t.Context(), inc), tx.PutContent(t.Context(), store.Content{ID: store.NewID(), Revision: 1, Body: []byte("{}")}), write(tx))
				})
				if !strings.HasPrefix(code(err), "22") {
					t.Errorf("%s with poison in it: %v", what, err)
				}
			}
			if after := get[string](s, "select string_agg(to_jsonb(i)::text, '') from incident i"); after != incident || get[int](s, "select count(*) from content") != content {
				t.Errorf("part of a refused transaction was written: %s", after)
			}
			if n := get[int](s, "select (select count(*) from alert) + (select count(*) from timeline) + (select count(*) from decision)"); n != 0 {
				t.Errorf("%d rows of refused transactions", n)
			}
		})
	}
}

// The same for JSON: a NUL that is escaped there has no place in a jsonb column.
func TestPoisonedJSONIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.started(s.incident("k"), delivery.Card)
	r := sent
	r.Reference.Permalink = "a\x00b"
	if _, err := s.Finish(t.Context(), alpha, []store.Finished{ended(b, r)}); !strings.HasPrefix(code(err), "22") {
		t.Errorf("a reference with NUL: %v", err)
	}
	for _, body := range []string{`{"a": "\u0000"}`, `{"a": `, ``, `{"a": "` + "\xff" + `"}`} {
		err := s.InTx(t.Context(), func(tx *store.Tx) error {
			return tx.PutContent(t.Context(), store.Content{ID: store.NewID(), Revision: 1, Body: []byte(body)})
		})
		if err == nil {
			t.Errorf("%q was stored as JSON", body)
		}
	}
	s.finish(alpha, b, sent)
}
