package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// What a look-up found is marked on the attempt that made it: of several with one key, the last that had begun by then.
func TestAdoptMarksTheAttemptThatMadeIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	began := get[time.Time](s, "select clock_timestamp() - interval '10 minutes'")
	ts := func(after time.Duration) delivery.Reference {
		return delivery.Reference{Channel: "C0123", TS: fmt.Sprintf("%.6f", float64(began.Add(after).UnixMicro())/1e6)}
	}
	for name, c := range map[string]struct {
		found delivery.Reference
		want  string
	}{
		"made by the first, when the second had failed": {ts(70 * time.Second), "reconcile sent, worker failed, worker unknown, worker unknown"},
		"by the third": {ts(130 * time.Second), "worker unknown, worker failed, reconcile sent, worker unknown"},
		"by the last":  {ts(time.Hour), "worker unknown, worker failed, worker unknown, reconcile sent"},
		"by the last, whose clock is a little slow": {ts(176 * time.Second), "worker unknown, worker failed, worker unknown, reconcile sent"},
		"before all, by a clock that is far off":    {ts(-time.Hour), "worker unknown, worker failed, worker unknown, reconcile sent"},
		"nobody knows when":                         {delivery.Reference{ChatID: 1, MessageID: 2}, "worker unknown, worker failed, worker unknown, reconcile sent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			id := s.add(s.incident("k"), delivery.Card)
			for n, r := range []delivery.Result{unknown, failed, unknown, unknown} {
				s.exec("update delivery set next_at = clock_timestamp()")
				b := s.begin(alpha, s.take(alpha))
				s.finish(alpha, b, r)
				s.exec("update attempt set started_at = $2 where id = $1", b.Attempt.ID, began.Add(time.Duration(n)*time.Minute))
			}
			s.exec("update delivery set next_at = clock_timestamp()")
			c0 := s.take(alpha)
			if _, ok, err := s.Adopt(t.Context(), c0.ID, c0.Doubt.Key, c.found, found(c0, c.found)); err != nil || !ok {
				t.Fatal(ok, err)
			}
			var got []string
			for _, a := range s.attempts(id) {
				got = append(got, *a.ClosedBy+" "+*a.Outcome)
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("%v, not %s", got, c.want)
			}
			r := s.row(id)
			if r.State != delivery.Sent || r.Reason != "reconciled" || r.Reference == nil || *r.Reference != c.found || r.Doubt != nil || r.Token != nil || r.Applied != 1 {
				t.Errorf("%s", pretty(r))
			}
			if n := get[int](s, "select count(*) from attempt where closed_by = 'reconcile' and reason = 'reconciled' and reference is not null"); n != 1 {
				t.Errorf("%d attempts say what they made", n)
			}
		})
	}
}

// found is what the owner of a claimed row decides once it has found its object.
func found(c store.Claimed, ref delivery.Reference) func(delivery.Delivery) (delivery.Step, bool) {
	return func(d delivery.Delivery) (delivery.Step, bool) {
		return d.Looked(c.Now, delivery.Look{Found: ref}), d.Token == c.Token
	}
}

// A wish that was raised while the object was looked for is decided on with it: found, and to be edited once.
func TestAdoptWhatWasRaisedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	b := s.started(inc, delivery.Card)
	s.finish(alpha, b, unknown)
	s.exec("update delivery set next_at = clock_timestamp()")
	c := s.take(alpha)
	s.note(inc, c.ID, raise(2))
	if _, ok, err := s.Adopt(t.Context(), c.ID, c.Doubt.Key, made, found(c, made)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if r := s.row(c.ID); r.State != delivery.Pending || r.Desired != 2 || r.Applied != 1 || r.Reference == nil || r.Doubt != nil || r.Token != nil {
		t.Errorf("%s", pretty(r))
	}
}

// Where the row is somebody else's after a look-up, nothing is adopted: the next look-up finds the same.
func TestAdoptOnARowThatMoved(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(s *site, inc store.Incident, id uuid.UUID){
		"another lease":  func(s *site, _ store.Incident, _ uuid.UUID) { s.lapse(); s.take(beta) },
		"it was settled": func(s *site, inc store.Incident, id uuid.UUID) { s.note(inc, id, cancel("resolved")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			b := s.started(inc, delivery.Card)
			s.finish(alpha, b, unknown)
			s.exec("update delivery set next_at = clock_timestamp()")
			c := s.take(alpha)
			move(s, inc, c.ID)
			before := s.whole(c.ID)
			if _, ok, err := s.Adopt(t.Context(), c.ID, c.Doubt.Key, made, found(c, made)); ok || err != nil {
				t.Errorf("adopted: %t, %v", ok, err)
			}
			s.unchanged(c.ID, before, name)
			if a := s.attempt(c.ID); !says(a.Outcome, "unknown") || !says(a.ClosedBy, "worker") {
				t.Errorf("%s", pretty(a))
			}
		})
	}
}

// An adoption that was lost on its way is repeated; one whose answer was lost stands, and its repeat changes nothing.
func TestLostAdoption(t *testing.T) {
	eachFault(t, func(f *faulty, how fault) {
		s := f.straight
		b := s.started(s.incident("k"), delivery.Card)
		s.finish(alpha, b, unknown)
		s.exec("update delivery set next_at = clock_timestamp()")
		c := s.take(alpha)
		adopt := func() (bool, error) {
			_, ok, err := f.Adopt(f.ctx(), c.ID, c.Doubt.Key, made, found(c, made))
			return ok, err
		}
		f.lost(commit, how, func() error {
			ok, err := adopt()
			if ok {
				f.t.Error("it says adopted")
			}
			return err
		})
		ok, err := adopt()
		if err != nil || ok != (how == lostRequest) {
			f.t.Errorf("repeated: %t, %v", ok, err)
		}
		s.inState(c.ID, delivery.Sent, "reconciled")
		if a := s.attempt(c.ID); !says(a.Outcome, "sent") || !says(a.ClosedBy, "reconcile") {
			f.t.Errorf("%s", pretty(a))
		}
	})
}
