package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// C4: killed between the attempt's commit and its call. Nobody can know that, so it is unknown by takeover, with the
// name of the replica, and tried again as a repeat.
func TestKilledBetweenAttemptAndCall(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	first := s.ready("first")
	first.line.lose(lineFault{statement: "Begin", answer: true, times: 1, die: true})
	first.run()
	s.until("the attempt without a call", func() bool { return len(s.attempts(id)) == 1 && first.line.met("Begin") == 1 })
	if n := len(s.desk("dm").all()); n != 0 {
		t.Fatalf("%d calls were made", n)
	}
	s.lapse()
	second := s.start("second")
	s.waitFor(id, delivery.Sent)
	takenOver(t, s, second, s.attempts(id))
	if calls := s.desk("dm").all(); len(calls) != 1 || !strings.Contains(calls[0].Message.Footer, "repeat") {
		t.Errorf("the second call does not say that it may be a repeat: %+v", calls)
	}
}

// takenOver checks that the first attempt was closed as unknown and names its worker, and that one more followed.
func takenOver(t *testing.T, s *site, by *hand, attempts []attempt) {
	t.Helper()
	if len(attempts) != 2 {
		t.Fatalf("%d attempts", len(attempts))
	}
	a, b := attempts[0], attempts[1]
	if a.Outcome != "unknown" || a.Evidence != "possibly_sent" || a.ClosedBy != "takeover" || a.Reason != "takeover" || a.Worker != "first" || !strings.Contains(a.Error, "first") {
		t.Errorf("the first attempt: %+v", a)
	}
	if b.EffectKey != a.EffectKey || b.Address != a.Address || b.Worker != "second" || b.Outcome != "sent" {
		t.Errorf("the second attempt: %+v", b)
	}
	if n := counted(t, by.metrics.Takeovers); n != 1 {
		t.Errorf("%v takeovers are counted", n)
	}
	by.quiet()
	s.recorded(s.desk("dm").all()...)
}

// C4: killed between the call and its result. The message is out; it is unknown, tried again under the same key, and the
// history says why there are two.
func TestKilledBetweenCallAndResult(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	g := s.gate()
	d := s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			g.pass()
		}
		return took(n, c)
	})
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	first := s.start("first")
	d.called(1)
	first.kill()
	g.open()
	s.lapse()
	second := s.start("second")
	s.waitFor(id, delivery.Sent)
	takenOver(t, s, second, s.attempts(id))
	if n := len(d.all()); n != 2 {
		t.Errorf("%d calls were made", n)
	}
}

// C4: a kind that must not be repeated is held by a takeover, dies loudly, and is never sent by itself.
func TestHeldAfterAKill(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	g := s.gate()
	d := s.desk("dm").says(g.held(took))
	i := s.incident("a")
	id := s.add(i, aCall("dm", "ana"))[0]
	first := s.start("first")
	d.called(1)
	first.kill()
	s.lapse()
	second := s.start("second")
	r := s.waitFor(id, delivery.Held)
	if r.Reason != "doubt" || r.Sentence == "" || !r.Doubt || r.Leased || r.DueIn != nil {
		t.Errorf("%+v", r)
	}
	s.until("its death is told", func() bool { return second.deaths.Load() == 1 })
	// What else the second worker does passes it by.
	s.move(24 * time.Hour)
	other := s.add(i, aPage("dm", "bo", 0))[0]
	d.says(nil)
	s.waitFor(other, delivery.Sent)
	if r := s.row(id); r.State != "held" || r.Attempts != 1 {
		t.Errorf("%+v", r)
	}
}

// Killed after the claim and before an attempt: surely nothing was called, so the row simply goes back, without doubt.
func TestKilledBeforeTheAttempt(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	first := s.ready("first")
	first.line.lose(lineFault{statement: "Begin", times: 1, die: true})
	first.run()
	s.until("the claim", func() bool { return first.line.met("Begin") == 1 })
	if r := s.row(id); !r.Leased || r.Attempts != 0 {
		t.Fatalf("%+v", r)
	}
	s.lapse()
	second := s.start("second")
	s.waitFor(id, delivery.Sent)
	if a := s.attempts(id); len(a) != 1 || a[0].Worker != "second" || a[0].Outcome != "sent" {
		t.Errorf("%+v", a)
	}
	if n := counted(t, second.metrics.Takeovers); n != 0 {
		t.Errorf("%v takeovers are counted", n)
	}
	if m := s.desk("dm").called(1).Message; strings.Contains(m.Footer, "repeat") {
		t.Errorf("the message calls itself a repeat: %q", m.Footer)
	}
}

// C5: frozen past its lease while the provider answers. What it writes when it wakes changes nothing: the answer is kept
// as late evidence, nobody is alarmed, and one query explains the second message.
func TestFrozenPastTheLease(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	g := s.gate()
	d := s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			g.pass()
		}
		return took(n, c)
	})
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	first := s.start("first")
	d.called(1)
	first.line.freeze()
	s.lapse()
	second := s.start("second")
	s.until("the second message", func() bool { return s.row(id).State == "sent" })
	before := s.row(id)
	g.open()
	first.line.thaw()
	s.until("late evidence", func() bool { return s.attempts(id)[0].LateOutcome == "sent" })
	first.stop()
	if after := s.row(id); after != before {
		t.Errorf("the frozen worker moved the row:\n%+v\n%+v", before, after)
	}
	first.quiet()
	second.quiet()
	if f, l := counted(t, first.metrics.Fenced), counted(t, first.metrics.Late.WithLabelValues("sent")); f != 1 || l != 1 {
		t.Errorf("fenced writes %v, late answers %v", f, l)
	}
	why := get[string](s, "select string_agg(worker || ' ' || outcome || ' ' || closed_by || ' ' || coalesce(late_outcome, '-'), ', ' order by attempt_no) from attempt_history where delivery_id = $1", id)
	if why != "first unknown takeover sent, second sent worker -" {
		t.Errorf("the history says %q", why)
	}
}

// A late answer helps what is still undecided: sent settles a held call, a proven failure lets it be tried again.
func TestLateAnswerSettlesWhatIsHeld(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]delivery.Result{"sent": {Outcome: delivery.OutcomeSent, Evidence: delivery.Answered, Reference: delivery.Reference{SID: "CA1"}}, "failed": refused} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, direct("dm"))
			g := s.gate()
			d := s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
				if n == 1 {
					g.pass()
					return answer
				}
				return took(n, c)
			})
			id := s.add(s.incident("a"), aCall("dm", "ana"))[0]
			first := s.start("first")
			d.called(1)
			first.line.freeze()
			s.lapse()
			s.start("second")
			s.waitFor(id, delivery.Held)
			g.open()
			first.line.thaw()
			r := s.waitFor(id, delivery.Sent)
			want := map[string]string{"sent": "[create unknown by takeover]", "failed": "[create unknown by takeover create sent by worker]"}[name]
			if got := s.outcomes(id); got != want || r.Doubt {
				t.Errorf("%s, %+v", got, r)
			}
			first.quiet()
		})
	}
}

// The first worker comes back before anybody has begun another attempt: its late answer settles the row under the second
// one's hands, and nothing is sent twice.
func TestLateAnswerComesBeforeTheRepeat(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	g := s.gate()
	d := s.desk("ops").says(g.held(took))
	id := s.add(s.incident("a"), aCard("ops"))[0]
	first := s.start("first")
	d.called(1)
	first.line.freeze()
	s.lapse()
	taken, back := s.gate(), make(chan bool, 100)
	second := s.start("second", hooks{accounts: func() { // the takeover is committed, nothing is decided yet
		back <- true
		taken.pass()
	}})
	s.comes("the takeover", back)
	g.open()
	first.line.thaw()
	s.until("late evidence", func() bool { return s.attempts(id)[0].LateOutcome == "sent" })
	taken.open()
	r := s.waitFor(id, delivery.Sent)
	if got := s.outcomes(id); got != "[create unknown by takeover]" || !r.Reference || r.Doubt {
		t.Errorf("%s, %+v", got, r)
	}
	if n := len(d.all()); n != 1 {
		t.Errorf("%d calls were made", n)
	}
	first.quiet()
	second.quiet()
}

// Evidence that came by another way than the worker that called is read before each create as well: what is known to be
// there is adopted, not made again.
func TestEvidenceIsReadBeforeTheRepeat(t *testing.T) {
	t.Parallel()
	s := newSite(t, retries(channel("ops"), slow))
	d := s.desk("ops").says(always(lostIt))
	i := s.incident("a")
	id := s.add(i, aCard("ops"))[0]
	s.start("first")
	s.until("the wait", func() bool { return s.row(id).Tries == 1 })
	s.exec(`update attempt set late_outcome = 'sent', late_at = clock_timestamp(), late_reference = '{"channel": "C0OPS", "ts": "1.5"}' where delivery_id = $1`, id)
	d.says(nil)
	s.move(2 * time.Hour)
	s.waitFor(id, delivery.Sent)
	if got := s.outcomes(id); got != "[create unknown by worker]" || len(d.all()) != 1 {
		t.Errorf("%s, %d calls", got, len(d.all()))
	}
	s.becomes(i, message.Acknowledged)
	if c := d.called(2); c.Operation != delivery.OpEdit || c.Reference.TS != "1.5" {
		t.Errorf("%+v", c)
	}
	s.settled()
}

// C6: replicas' clocks may be hours off. No time of theirs is written: due times, leases and attempts follow the
// database's clock, wherever that stands.
func TestOnlyTheDatabasesClockIsWritten(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{7 * time.Hour, -31 * 24 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, channel("ops"))
			s.move(off)
			s.change(func(f *config.File) { f.Notifiers["ops"] = retries(channel("ops"), slow) })
			g := s.gate()
			d := s.desk("ops").says(g.held(func(int, provider.Call) delivery.Result { return lostIt }))
			before := get[time.Time](s, "select clock_timestamp()")
			id := s.add(s.incident("a"), aCard("ops"))[0]
			s.start("first")
			d.called(1)
			after := get[time.Time](s, "select clock_timestamp()")
			if left := get[float64](s, "select extract(epoch from lease_until - $2)::float8 from delivery where id = $1", id, after); left > lease.Seconds() || left < lease.Seconds()-patience.Seconds() {
				t.Errorf("the lease has %v s left", left)
			}
			g.open()
			s.until("the retry", func() bool { return s.row(id).Tries == 1 })
			end := get[time.Time](s, "select clock_timestamp()")
			a := s.attempts(id)[0]
			if a.StartedAt.Before(before) || a.StartedAt.After(after) {
				t.Errorf("the attempt began at %s, between %s and %s by the database", a.StartedAt, before, after)
			}
			for column, window := range map[string][2]time.Time{
				"(select finished_at from attempt where delivery_id = d.id)": {after, end},
				"d.called_at":                        {before, after},
				"d.created_at":                       {before, after},
				"d.next_at - interval '1 hour'":      {after, end.Add(7 * time.Minute)}, // jitter
				"(d.doubt ->> 'since')::timestamptz": {before, after},
			} {
				if at := get[time.Time](s, "select "+column+" from delivery d where d.id = $1", id); at.Before(window[0]) || at.After(window[1]) {
					t.Errorf("%s is %s, not between %s and %s", column, at, window[0], window[1])
				}
			}
		})
	}
}

// Two workers on one queue never have one delivery at the same time, also when leases end under them: each call beyond
// the first of an effect has an attempt in doubt before it.
func TestEachRepeatHasADoubtBeforeIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	i := s.incident("a")
	ids := s.events(i, "audit", 40)
	frozen := s.gate()
	d := s.desk("audit").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n%10 == 3 && n < 40 {
			frozen.pass()
		}
		return took(n, c)
	})
	a, b := s.start("first"), s.start("second")
	s.until("all but the frozen ones", func() bool {
		now, _ := d.underway()
		return now > 0 && get[int](s, "select count(*)::int from delivery where state = 'sent'") == len(ids)-now
	})
	s.lapse()
	s.until("the rest", func() bool { return get[int](s, "select count(*)::int from delivery where state = 'sent'") == len(ids) })
	frozen.open()
	a.stop()
	b.stop()
	doubts(t, s, ids, d.all())
	a.quiet()
	b.quiet()
}
