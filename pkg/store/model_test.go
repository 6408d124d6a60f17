package store_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Two workers that forget nothing, a clock and everyone else do what they like to a few deliveries, in any order. A
// model as simple as the rules says what each write must do: a lease token and a version guard each row, attempts are
// only ever added, and what was decided is what is written.

// modelLease is long beside the backoffs, so that a move of the clock makes all that waits due and not every lease over.
const modelLease = time.Hour

// modelRow is what the model knows of one delivery.
type modelRow struct {
	id       uuid.UUID
	token    uuid.UUID     // of the current lease; zero: free
	left     time.Duration // of the current lease
	version  int64
	desired  int
	stop     bool
	open     uuid.UUID
	attempts []*modelAttempt
}

type modelAttempt struct {
	id       uuid.UUID
	token    uuid.UUID
	outcome  delivery.Outcome // empty: open
	closedBy string
	late     delivery.Outcome
}

// job is a claimed delivery in the hands of a worker, who goes on with it however long ago that was.
type job struct {
	row    *modelRow
	worker string
	claim  store.Claimed
	intent store.Begun
	begun  *store.Begun // set by the first begin that was let through
}

// world is one run of the model.
type world struct {
	*site
	r    *rapid.T
	lane store.Lane
	inc  store.Incident
	rows []*modelRow
	by   map[uuid.UUID]*modelRow
	jobs []*job
}

// shrinkable is a testing.TB whose failures are rapid's, which then looks for a shorter run that fails.
type shrinkable struct {
	testing.TB
	r *rapid.T
}

func (s shrinkable) Helper()                      {}
func (s shrinkable) Error(args ...any)            { s.r.Error(args...) }
func (s shrinkable) Errorf(f string, args ...any) { s.r.Errorf(f, args...) }
func (s shrinkable) Fatal(args ...any)            { s.r.Fatal(args...) }
func (s shrinkable) Fatalf(f string, args ...any) { s.r.Fatalf(f, args...) }
func (w *world) draw(what string, most int) int   { return rapid.IntRange(0, most).Draw(w.r, what) }
func (w *world) must(ok bool, f string, a ...any) { checkThat(w.r, ok, f, a...) }
func checkThat(r *rapid.T, ok bool, f string, a ...any) {
	if !ok {
		r.Fatalf(f, a...)
	}
}

func TestAgainstASimpleModel(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		own := *s
		own.t = shrinkable{t, r}
		w := &world{site: &own, r: r, lane: store.Lane{Notifier: fmt.Sprint("model ", n), Free: 3}, by: map[uuid.UUID]*modelRow{}}
		w.inc = w.incident(w.lane.Notifier)
		for _, k := range []delivery.Kind{delivery.Card, delivery.Page, delivery.Call} {
			row := &modelRow{id: w.add(w.inc, k, via(w.lane.Notifier)), desired: 1}
			w.rows = append(w.rows, row)
			w.by[row.id] = row
		}
		r.Repeat(map[string]func(*rapid.T){
			"":         func(*rapid.T) { w.check() },
			"claim":    func(*rapid.T) { w.claimSome() },
			"claim 2":  func(*rapid.T) { w.claimSome() }, // twice as often: without claims nothing goes on
			"begin":    func(*rapid.T) { w.beginOne() },
			"begin 2":  func(*rapid.T) { w.beginOne() },
			"finish":   func(*rapid.T) { w.finishOne() },
			"finish 2": func(*rapid.T) { w.finishOne() },
			"again":    func(*rapid.T) { w.finishAgain() },
			"late":     func(*rapid.T) { w.lateOne() },
			"back":     func(*rapid.T) { w.giveBack() },
			"note":     func(*rapid.T) { w.noteOne() },
			"decide":   func(*rapid.T) { w.decideOne() },
			"time":     func(*rapid.T) { w.pass() },
		})
	})
}

// check compares every row and all its attempts with the model.
func (w *world) check() {
	for _, m := range w.rows {
		r := w.row(m.id)
		w.must(zero(r.Token) == m.token, "delivery %s has lease %v, not %s", m.id, r.Token, m.token)
		w.must(r.Version == m.version, "delivery %s has version %d, not %d", m.id, r.Version, m.version)
		w.must(zero(r.Open) == m.open, "delivery %s has open attempt %v, not %s", m.id, r.Open, m.open)
		w.must(r.Desired == m.desired, "delivery %s wishes revision %d, not %d", m.id, r.Desired, m.desired)
		w.must((r.StopState != nil) == m.stop, "delivery %s has stop %v, not %t", m.id, r.StopState, m.stop)
		w.must(r.Attempts == len(m.attempts), "delivery %s counts %d attempts, not %d", m.id, r.Attempts, len(m.attempts))
		attempts := w.attempts(m.id)
		w.must(len(attempts) == len(m.attempts), "delivery %s has %d attempts, not %d", m.id, len(attempts), len(m.attempts))
		for i, a := range attempts {
			want := m.attempts[i]
			w.must(a.ID == want.id && a.Number == i+1 && a.Token == want.token, "attempt %d of %s is %s, not %+v", i+1, m.id, pretty(a), *want)
			w.must(text(a.Outcome) == string(want.outcome) && text(a.ClosedBy) == want.closedBy && text(a.Late) == string(want.late), "attempt %d of %s says %s, not %+v", i+1, m.id, pretty(a), *want)
			w.must((a.Outcome == nil) == (a.ID == m.open), "attempt %d of %s: %s, and the open one is %s", i+1, m.id, pretty(a), m.open)
		}
	}
}

func zero(id *uuid.UUID) uuid.UUID {
	if id == nil {
		return uuid.Nil
	}
	return *id
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// claimSome lets one of the workers take what is due.
func (w *world) claimSome() {
	worker := []string{alpha, beta}[w.draw("worker", 1)]
	var due []uuid.UUID
	for _, m := range w.rows {
		if get[bool](w.site, "select coalesce(next_at <= clock_timestamp(), false) from delivery where id = $1", m.id) {
			due = append(due, m.id)
		}
	}
	got, err := w.Claim(w.ctx(), worker, modelLease, []store.Lane{w.lane})
	w.must(err == nil, "claim: %v", err)
	taken := map[uuid.UUID]bool{}
	for _, c := range got {
		m := w.by[c.ID]
		w.must(!taken[c.ID], "claimed %s twice", c.ID)
		w.must(m.token == uuid.Nil || m.left <= 0, "claimed %s, whose lease has %s left", c.ID, m.left)
		w.must(c.Token != m.token && c.Token != uuid.Nil, "claimed %s with the token of before", c.ID)
		w.must((c.TakenOver != nil) == (m.open != uuid.Nil), "claimed %s: taken over %s, open was %s", c.ID, pretty(c.TakenOver), m.open)
		taken[c.ID] = true
		m.token, m.left = c.Token, modelLease
		m.version++
		if m.open != uuid.Nil {
			a := m.attempts[len(m.attempts)-1]
			w.must(c.TakenOver.Attempt.ID == a.id && c.Doubt != nil, "taken over %s, not %s", pretty(c.TakenOver), a.id)
			a.outcome, a.closedBy, m.open = delivery.OutcomeUnknown, "takeover", uuid.Nil
			m.version++
		}
		w.must(c.Version == m.version && c.OpenAttempt == uuid.Nil && c.State == delivery.Pending, "claimed %s", pretty(c))
		w.jobs = append(w.jobs, &job{row: m, worker: worker, claim: c, intent: intent(c)})
	}
	for _, id := range due {
		w.must(taken[id], "%s was due and not claimed", id)
	}
}

// job picks one of all that were ever claimed, the newer ones more often.
func (w *world) job(ok func(*job) bool) *job {
	var some []*job
	for i := len(w.jobs) - 1; i >= 0; i-- {
		if ok(w.jobs[i]) {
			some = append(some, w.jobs[i])
		}
	}
	if len(some) == 0 {
		w.r.Skip("no such job")
	}
	return some[min(w.draw("job", 2*len(some)-1)/2, len(some)-1)]
}

// untouched runs a write that must change nothing of a delivery.
func (w *world) untouched(m *modelRow, what string, write func()) {
	before := w.whole(m.id)
	write()
	after := w.whole(m.id)
	w.must(after == before, "%s changed the delivery\nfrom %s\nto   %s", what, before, after)
}

func (w *world) beginOne() {
	j := w.job(func(*job) bool { return true })
	m := j.row
	mine := j.claim.Token == m.token && m.left > 0
	repeated := mine && m.open != uuid.Nil && m.open == j.intent.Attempt.ID
	allowed := repeated || mine && m.open == uuid.Nil && j.claim.Version == m.version
	var got map[uuid.UUID]store.Begun
	begin := func() { got = w.try(j.worker, j.intent) }
	if !allowed || repeated {
		w.untouched(m, "a begin that is refused or done already", begin)
	} else {
		begin()
		m.attempts = append(m.attempts, &modelAttempt{id: j.intent.Attempt.ID, token: m.token})
		m.open = j.intent.Attempt.ID
		m.version++
	}
	b, ok := got[m.id]
	w.must(ok == allowed, "begin let it through: %t, not %t", ok, allowed)
	if !ok {
		return
	}
	w.must(b.Attempt.Number == len(m.attempts), "begun as number %d of %d", b.Attempt.Number, len(m.attempts))
	w.must(b.Delivery.Version == j.claim.Version+1, "begun on version %d, claimed as %d", b.Delivery.Version, j.claim.Version)
	j.begun = &b
}

// result draws what a call came to.
func (w *world) result() delivery.Result {
	return []delivery.Result{sent, failed, unknown, refused, {Outcome: delivery.OutcomeFailed, Evidence: delivery.NotCalled, Reason: "shutdown"}}[w.draw("result", 4)]
}

// wrote compares a delivery with the step that was just written to it.
func (w *world) wrote(m *modelRow, c delivery.Change) {
	r := w.row(m.id)
	m.version++
	m.desired, m.stop = c.Desired, c.Stop != nil
	if c.Release {
		m.token = uuid.Nil
	}
	w.must(r.State == c.State && r.Effect == c.Effect && r.Applied == c.Applied && r.Tries == c.Tries, "wrote %s as %s", pretty(c), pretty(r))
	w.must(c.Notes() || r.Reason == c.Reason, "wrote %s as %s", pretty(c), pretty(r))
	ref := delivery.Reference{}
	if r.Reference != nil {
		ref = *r.Reference
	}
	w.must(ref == c.Reference, "wrote reference %+v as %+v", c.Reference, ref)
	var d *doubt
	if c.Doubt != nil {
		d = &doubt{}
		b, err := json.Marshal(c.Doubt) // the column's names are those of the fields, in small letters
		w.must(err == nil && json.Unmarshal(b, d) == nil, "%v", err)
	}
	w.must((d == nil) == (r.Doubt == nil) && (d == nil || reflect.DeepEqual(at(*d), at(*r.Doubt))), "wrote doubt %s as %s", pretty(d), pretty(r.Doubt))
	switch c.Next {
	case delivery.NextNone:
		w.must(r.NextAt == nil && r.SettledAt != nil, "wrote %s as %s", pretty(c), pretty(r))
	case delivery.NextIn:
		w.must(r.NextAt != nil && r.SettledAt == nil, "wrote %s as %s", pretty(c), pretty(r))
	}
}

// at is a doubt to the microsecond, which is what Postgres' clock told.
func at(d doubt) doubt { d.Since = d.Since.UTC().Truncate(time.Microsecond); return d }

func (w *world) finishOne() {
	j := w.job(func(j *job) bool { return j.begun != nil })
	w.finishWith(j, *j.begun, j.begun.Delivery.Token == j.row.token && j.begun.Delivery.Version == j.row.version)
}

// finishAgain is what a worker does after a note got in its way: it reads the row and decides again.
func (w *world) finishAgain() {
	j := w.job(func(j *job) bool { return j.begun != nil && j.row.open == j.begun.Attempt.ID })
	now, err := w.Read(w.ctx(), j.row.id)
	w.must(err == nil, "read: %v", err)
	b := *j.begun
	b.Delivery = now[j.row.id].Delivery
	w.finishWith(j, b, true)
}

func (w *world) finishWith(j *job, b store.Begun, allowed bool) {
	m, r := j.row, w.result()
	f := ended(b, r)
	if !allowed {
		w.untouched(m, "a finish whose token or version is gone", func() {
			w.must(len(w.end(j.worker, f)) == 0, "it was taken")
		})
		return
	}
	w.must(w.end(j.worker, f)[m.id], "a finish of the current lease was refused")
	a := m.attempts[len(m.attempts)-1]
	a.outcome, a.closedBy, m.open = r.Outcome, "worker", uuid.Nil
	stop := b.Delivery.Stop
	w.wrote(m, f.Step.Change())
	if stop != nil && r.Outcome != delivery.OutcomeSent && b.Attempt.Operation != delivery.OpEdit {
		w.must(w.row(m.id).State == stop.State, "a %s attempt left it %s, noted was %s", r.Outcome, w.row(m.id).State, stop.State)
	}
}

func (w *world) lateOne() {
	j := w.job(func(j *job) bool { return j.begun != nil && j.row.open != j.begun.Attempt.ID })
	m, r := j.row, w.result()
	var mine *modelAttempt
	for _, a := range m.attempts {
		if a.id == j.begun.Attempt.ID {
			mine = a
		}
	}
	var step *delivery.Step
	before := w.whole(m.id)
	recorded, settled, err := w.Late(w.ctx(), j.worker, ended(*j.begun, r), func(d delivery.Delivery, a delivery.Attempt) (delivery.Step, bool) {
		s, ok := d.Late(env(d.Kind), a, r.Outcome, r.Reference)
		if ok {
			step = &s
		}
		return s, ok
	})
	w.must(err == nil, "late: %v", err)
	w.must(recorded == (mine.closedBy == "takeover" && mine.late == ""), "recorded %t on %+v", recorded, *mine)
	w.must(settled == (step != nil), "settled %t", settled)
	if recorded {
		mine.late = r.Outcome
	}
	if settled {
		newer := m.attempts[slices.Index(m.attempts, mine)+1:]
		w.must(m.open == uuid.Nil, "a late answer settled a delivery whose call is in flight")
		// What a newer attempt made, or says it did not, counts; only a late success counts beside it.
		made := slices.ContainsFunc(newer, func(a *modelAttempt) bool { return a.outcome == delivery.OutcomeSent })
		w.must(len(newer) == 0 || r.Outcome == delivery.OutcomeSent && !made, "a late %s settled a delivery with a newer attempt", r.Outcome)
		w.wrote(m, step.Change())
	} else {
		after := w.whole(m.id)
		w.must(after == before, "a late answer that settles nothing changed\n%s\nto\n%s", before, after)
	}
}

func (w *world) giveBack() {
	j := w.job(func(*job) bool { return true })
	m := j.row
	step := j.claim.GiveBack(0, "")
	settle := func() map[uuid.UUID]bool {
		done, err := w.Settle(w.ctx(), []delivery.Step{step})
		w.must(err == nil, "settle: %v", err)
		return done
	}
	if j.claim.Token != m.token || j.claim.Version != m.version {
		w.untouched(m, "a step whose token or version is gone", func() { w.must(len(settle()) == 0, "it was taken") })
		return
	}
	w.must(settle()[m.id], "a step of the current lease was refused")
	w.wrote(m, step.Change())
}

func (w *world) noteOne() {
	m := w.rows[w.draw("row", len(w.rows)-1)]
	decide := []func(delivery.Delivery) (delivery.Step, bool){
		raise(m.desired + 1), raise(m.desired + 1), cancel("acknowledged"), delivery.Delivery.Expire, delivery.Delivery.Exhaust,
		func(d delivery.Delivery) (delivery.Step, bool) { return d.Answer("resolved", m.desired+1) },
	}[w.draw("note", 5)]
	var step *delivery.Step
	w.note(w.inc, m.id, func(d delivery.Delivery) (delivery.Step, bool) {
		s, ok := decide(d)
		if ok {
			step = &s
		}
		return s, ok
	})
	if step != nil {
		w.must(step.Change().Notes() || m.open == uuid.Nil, "a row with an open attempt was settled from outside: %s", pretty(step.Change()))
		w.wrote(m, step.Change())
	}
}

// decideOne is a person's decision on a dead delivery, so that runs go on.
func (w *world) decideOne() {
	m := w.rows[w.draw("row", len(w.rows)-1)]
	action := []delivery.Action{delivery.SendAgain, delivery.SendAgain, delivery.AssumeDelivered}[w.draw("decision", 2)]
	var change *delivery.Change
	w.note(w.inc, m.id, func(d delivery.Delivery) (delivery.Step, bool) {
		s, err := d.Decide(action)
		if err == nil {
			c := s.Change()
			change = &c
		}
		return s, err == nil
	})
	if change != nil {
		w.wrote(m, *change)
	}
}

// pass moves the database's clock: by a part of a lease, or by more than one.
func (w *world) pass() {
	d := []time.Duration{25 * time.Minute, 70 * time.Minute}[w.draw("time", 1)]
	w.exec("update clock.moved set by = by + make_interval(secs => $1)", d.Seconds())
	for _, m := range w.rows {
		m.left -= d
	}
}
