package store_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func TestFinishClosesAttemptAndDeliveryTogether(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.started(s.incident("k"), delivery.Card)
	id := b.Delivery.ID
	r := sent
	r.Code, r.DNS, r.Connect, r.TLS, r.FirstByte, r.Duration = "ok", 1500*time.Microsecond, 2*time.Millisecond, 3*time.Millisecond, 40*time.Millisecond, 50*time.Millisecond
	s.finish(alpha, b, r)
	row, a := s.row(id), s.attempt(id)
	switch {
	case row.State != delivery.Sent || row.Token != nil || row.Until != nil || row.Open != nil || row.NextAt != nil || row.SettledAt == nil:
		t.Errorf("the delivery says %s", pretty(row))
	case row.Reference == nil || *row.Reference != made || row.Applied != 1 || row.Tries != 0 || row.Version != b.Delivery.Version+1:
		t.Errorf("the delivery says %s", pretty(row))
	case !says(a.Outcome, "sent") || !says(a.Evidence, "answered") || !says(a.ClosedBy, "worker") || a.FinishedAt == nil || a.Late != nil:
		t.Errorf("the attempt says %s", pretty(a))
	}
	type rest struct {
		Code, Answer          string
		Status, Bytes         int
		DNS, Con, TLS, FB, Du float64
		TS                    string
	}
	var got rest
	if err := s.db.QueryRow(t.Context(), "select provider_code, answer, http_status, bytes_written, dns_ms, connect_ms, tls_ms, first_byte_ms, duration_ms, reference->>'ts' from attempt").Scan(
		&got.Code, &got.Answer, &got.Status, &got.Bytes, &got.DNS, &got.Con, &got.TLS, &got.FB, &got.Du, &got.TS); err != nil {
		t.Fatal(err)
	}
	if want := (rest{"ok", `{"ok":true}`, 200, 812, 1.5, 2, 3, 40, 50, made.TS}); got != want {
		t.Errorf("the attempt keeps %+v, not %+v", got, want)
	}
}

// A phase that the call did not reach has no time, and a call without an answer has no status.
func TestFinishKeepsWhatWasNotReachedEmpty(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.started(s.incident("k"), delivery.Page)
	s.finish(alpha, b, failed)
	if n := get[int](s, "select num_nulls(http_status, dns_ms, connect_ms, tls_ms, first_byte_ms, reference, late_outcome) from attempt"); n != 7 {
		t.Errorf("%d of 7 columns are empty", n)
	}
	r, a := s.row(b.Delivery.ID), s.attempt(b.Delivery.ID)
	if r.State != delivery.Pending || r.Tries != 1 || r.Doubt != nil || r.Token != nil || r.Open != nil || r.SettledAt != nil || r.Reason != "refused" {
		t.Errorf("the delivery says %s", pretty(r))
	}
	if !says(a.Outcome, "failed") || !says(a.Evidence, "not_sent") || a.Reason != "refused" {
		t.Errorf("the attempt says %s", pretty(a))
	}
	// The backoff counts from now, with at most a tenth of jitter.
	if wait := r.NextAt.Sub(*a.FinishedAt); wait < delivery.DefaultRetries.Delay-time.Second || wait > delivery.DefaultRetries.Delay*11/10+time.Second {
		t.Errorf("the next try is after %s, not about %s", wait, delivery.DefaultRetries.Delay)
	}
}

func TestFinishPutsTheDeliveryInDoubt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	b := s.started(inc, delivery.Page)
	id := b.Delivery.ID
	s.finish(alpha, b, unknown)
	r := s.row(id)
	want := doubt{Effect: 1, Key: id.String() + ":1", Address: "C0123", Revision: 1, Through: 1}
	if r.Doubt == nil || !near(r.Doubt.Since, b.Attempt.StartedAt) {
		t.Fatalf("the doubt is %s, since the attempt began at %s", pretty(r.Doubt), b.Attempt.StartedAt)
	}
	first := r.Doubt.Since
	if r.Doubt.Since = want.Since; *r.Doubt != want {
		t.Errorf("the doubt is %s, not %s", pretty(r.Doubt), pretty(want))
	}
	// The next attempt has the same key; its doubt keeps the date and the lowest revision.
	s.note(inc, id, raise(4))
	s.due(id, -time.Second)
	s.finish(alpha, s.begin(alpha, s.take(alpha)), unknown)
	if got := s.attempts(id)[1]; got.Key != want.Key || got.Revision != 4 {
		t.Errorf("the second attempt is %s", pretty(got))
	}
	r = s.row(id)
	if r.Doubt == nil || !r.Doubt.Since.Equal(first) || r.Doubt.Revision != 1 || r.Tries != 2 {
		t.Errorf("after the second attempt the delivery says %s", pretty(r))
	}
	// An answer lifts it.
	s.due(id, -time.Second)
	s.finish(alpha, s.begin(alpha, s.take(alpha)), sent)
	if r = s.row(id); r.Doubt != nil || r.State != delivery.Sent || r.Tries != 0 {
		t.Errorf("after the answer the delivery says %s", pretty(r))
	}
}

// Rule 3: the write of a worker whose lease is gone changes nothing at all.
func TestFinishIsFenced(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(s *site, inc store.Incident, b *store.Begun){
		"another token":             func(_ *site, _ store.Incident, b *store.Begun) { b.Delivery.Token = uuid.New() },
		"no token":                  func(_ *site, _ store.Incident, b *store.Begun) { b.Delivery.Token = uuid.Nil },
		"a lease granted anew":      func(s *site, _ store.Incident, _ *store.Begun) { s.lapse(); s.take(beta) },
		"a wish noted":              func(s *site, inc store.Incident, b *store.Begun) { s.note(inc, b.Delivery.ID, raise(2)) },
		"a stop noted":              func(s *site, inc store.Incident, b *store.Begun) { s.note(inc, b.Delivery.ID, cancel("resolved")) },
		"an older version believed": func(_ *site, _ store.Incident, b *store.Begun) { b.Delivery.Version-- },
		"a newer version believed":  func(_ *site, _ store.Incident, b *store.Begun) { b.Delivery.Version++ },
		"the result written before": func(s *site, _ store.Incident, b *store.Begun) { s.finish(alpha, *b, failed) },
		"a row that is gone": func(s *site, _ store.Incident, b *store.Begun) {
			s.exec("delete from delivery where id = $1", b.Delivery.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			b := s.started(inc, delivery.Card)
			spoil(s, inc, &b)
			const all = "select coalesce((select string_agg(to_jsonb(d)::text, '') from delivery d), '') || coalesce((select string_agg(to_jsonb(a)::text, '') from attempt a), '')"
			before := get[string](s, all)
			if done := s.end(alpha, ended(b, sent)); len(done) != 0 {
				t.Errorf("the result was taken: %v", done)
			}
			if after := get[string](s, all); after != before {
				t.Errorf("a fenced finish changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

// A lease that ran out but was not granted anew is still the worker's: nobody else has judged its attempt yet.
func TestFinishAfterTheLeaseButBeforeATakeoverCounts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.started(s.incident("k"), delivery.Card)
	s.lapse()
	s.finish(alpha, b, sent)
	s.inState(b.Delivery.ID, delivery.Sent, "")
	if got := s.claim(beta); len(got) != 0 {
		t.Errorf("what is sent was claimed: %v", ids(got))
	}
}

// Only the version differs: what was noted is read, the result is decided again on it, and written.
func TestFinishAgainOnWhatWasNoted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	b := s.started(inc, delivery.Card)
	id := b.Delivery.ID
	s.note(inc, id, raise(6))
	if done := s.end(alpha, ended(b, sent)); len(done) != 0 {
		t.Fatal("the result was written over the new wish")
	}
	got, err := s.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if d := got[id].Delivery; d.Token != b.Delivery.Token || d.OpenAttempt != b.Attempt.ID || d.Desired != 6 || d.Version != b.Delivery.Version+1 {
		t.Fatalf("read %s", pretty(d))
	}
	b.Delivery = got[id].Delivery
	s.finish(alpha, b, sent)
	r := s.row(id)
	if r.State != delivery.Pending || r.Applied != 1 || r.Desired != 6 || r.Reference == nil || !near(*r.NextAt, *s.attempt(id).FinishedAt) {
		t.Errorf("one edit must follow, the delivery says %s", pretty(r))
	}
	if n := len(s.attempts(id)); n != 1 {
		t.Errorf("deciding twice made %d attempts", n)
	}
}

// A lost answer to a commit: the second finish changes nothing, and late evidence finds the result in its place.
func TestFinishTwiceIsOnce(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]delivery.Result{"sent": sent, "failed": failed, "unknown": unknown, "rejected": refused} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			b := s.started(s.incident("k"), delivery.Page)
			id := b.Delivery.ID
			s.finish(alpha, b, r)
			before, attempt := s.whole(id), pretty(s.attempt(id))
			if done := s.end(alpha, ended(b, r)); len(done) != 0 {
				t.Error("the second finish was taken")
			}
			if recorded, settled := s.late(alpha, b, r); recorded || settled {
				t.Errorf("what stands there as an ordinary result was recorded as late: %t, %t", recorded, settled)
			}
			s.unchanged(id, before, "a finish sent twice")
			if got := pretty(s.attempt(id)); got != attempt {
				t.Errorf("the attempt became %s", got)
			}
		})
	}
}

// The results of a batch are written together, each under its own fence.
func TestFinishOfABatchWithOneFencedRow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	for range 4 {
		s.add(inc, delivery.Event)
	}
	claimed := s.claim(alpha)
	results := []delivery.Result{sent, failed, unknown, refused}
	var batch []store.Finished
	want := map[uuid.UUID]bool{}
	for i, c := range claimed {
		b := s.begin(alpha, c)
		batch = append(batch, ended(b, results[i]))
		if i == 1 {
			s.note(inc, c.ID, cancel("canceled_by"))
		} else {
			want[c.ID] = true
		}
	}
	if done := s.end(alpha, batch...); !maps.Equal(done, want) {
		t.Errorf("%v took their results, not %v", done, want)
	}
	for i, state := range []delivery.State{delivery.Sent, delivery.Pending, delivery.Pending, delivery.Rejected} {
		r, a := s.row(claimed[i].ID), s.attempt(claimed[i].ID)
		if r.State != state {
			t.Errorf("delivery %d is %s, not %s", i, r.State, state)
		}
		if i == 1 {
			if a.Outcome != nil || r.Open == nil || *r.Open != a.ID {
				t.Errorf("the fenced delivery's attempt says %s", pretty(a))
			}
		} else if !says(a.Outcome, string(results[i].Outcome)) || a.ID != batch[i].Attempt.ID || r.Open != nil {
			t.Errorf("attempt %d says %s", i, pretty(a))
		}
	}
}

// A fail-over lost the attempt's row. The call was made, so the history must say so.
func TestFinishRecordsALostAttemptAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	s.add(inc, delivery.Card)
	s.add(inc, delivery.Event)
	var lost, kept store.Begun
	for _, c := range s.claim(alpha) {
		if c.Kind == delivery.Card {
			lost = s.begin(alpha, c)
		} else {
			kept = s.begin(alpha, c)
		}
	}
	s.exec("delete from attempt where id = $1", lost.Attempt.ID)
	if done := s.end(alpha, ended(kept, sent), ended(lost, sent)); len(done) != 2 {
		t.Fatalf("%d of 2 took their results", len(done))
	}
	a := s.attempt(lost.Delivery.ID)
	switch {
	case a.ID != lost.Attempt.ID || a.Number != 1 || a.Key != lost.Attempt.Key || a.Address != "C0123" || a.Token != lost.Delivery.Token || a.Worker != alpha || !near(a.StartedAt, lost.Attempt.StartedAt):
		t.Errorf("recorded again as %s", pretty(a))
	case !says(a.Outcome, "sent") || a.Reason != "row_lost" || !says(a.ClosedBy, "worker"):
		t.Errorf("recorded again as %s", pretty(a))
	}
	s.inState(lost.Delivery.ID, delivery.Sent, "")
	if a := s.attempt(kept.Delivery.ID); a.Reason != "" {
		t.Errorf("the attempt that was not lost says %s", pretty(a))
	}
	// The lease is gone as well, and so is the row: the answer is kept all the same, once.
	b := s.started(inc, delivery.Page)
	s.lapse()
	s.take(beta)
	s.exec("delete from attempt where id = $1", b.Attempt.ID)
	for range 2 {
		s.late(alpha, b, failed)
	}
	if a := s.attempt(b.Delivery.ID); !says(a.Outcome, "failed") || a.Reason != "row_lost" {
		t.Errorf("recorded again as %s", pretty(a))
	}
	if n := get[int](s, "select count(*) from attempt where reason = 'row_lost' and http_status is null and reference is null"); n != 1 {
		t.Error("a call without an answer was recorded with a status or a reference")
	}
}

// A finish waits for whoever holds the row and goes by what the row says after that.
func TestFinishWaitsForTheRowAndLooksAgain(t *testing.T) {
	t.Parallel()
	for name, commit := range map[string]bool{"committed": true, "taken back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			b := s.started(inc, delivery.Card)
			var finish *call[map[uuid.UUID]bool]
			err := s.InTx(t.Context(), func(tx *store.Tx) error {
				if err := noteIn(t.Context(), tx, inc, b.Delivery.ID, raise(2)); err != nil {
					return err
				}
				finish = async(t, func() (map[uuid.UUID]bool, error) {
					return s.Finish(t.Context(), alpha, []store.Finished{ended(b, sent)})
				})
				s.blocked(1)
				if !commit {
					return errTakenBack
				}
				return nil
			})
			if commit && err != nil {
				t.Fatal(err)
			}
			if done := finish.wait()[b.Delivery.ID]; done == commit {
				t.Errorf("the result was taken: %t", done)
			}
			if r := s.row(b.Delivery.ID); commit && (r.Desired != 2 || r.State != delivery.Pending || r.Open == nil) {
				t.Errorf("the delivery says %s", pretty(r))
			}
		})
	}
}

// A takeover and a finish at the same moment: whoever has the row first wins, the other changes nothing.
func TestFinishAgainstATakeover(t *testing.T) {
	t.Parallel()
	t.Run("takeover first", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		b := s.started(s.incident("k"), delivery.Card)
		s.lapse()
		g := s.holdCommits()
		g.shut()
		claim := async(t, func() ([]store.Claimed, error) {
			return s.Claim(t.Context(), beta, lease, []store.Lane{{Notifier: ops, Free: 1}})
		})
		s.blocked(1)
		finish := async(t, func() (map[uuid.UUID]bool, error) {
			return s.Finish(t.Context(), alpha, []store.Finished{ended(b, sent)})
		})
		s.blocked(2)
		g.open()
		if got := claim.wait(); len(got) != 1 || got[0].TakenOver == nil {
			t.Errorf("the claim got %s", pretty(got))
		}
		if done := finish.wait(); len(done) != 0 {
			t.Error("a result was written under a lease that was taken over")
		}
		if a := s.attempt(b.Delivery.ID); !says(a.Outcome, "unknown") || !says(a.ClosedBy, "takeover") {
			t.Errorf("the attempt says %s", pretty(a))
		}
	})
	t.Run("finish first", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		b := s.started(s.incident("k"), delivery.Card)
		s.lapse()
		g := s.holdCommits()
		g.shut()
		finish := async(t, func() (map[uuid.UUID]bool, error) {
			return s.Finish(t.Context(), alpha, []store.Finished{ended(b, sent)})
		})
		s.blocked(1)
		if got := s.claim(beta); len(got) != 0 {
			t.Errorf("the claim took a row whose result is being written: %v", ids(got))
		}
		g.open()
		if done := finish.wait(); !done[b.Delivery.ID] {
			t.Error("the result was not taken")
		}
		s.inState(b.Delivery.ID, delivery.Sent, "")
	})
}
