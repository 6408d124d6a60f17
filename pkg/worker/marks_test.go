package worker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func claimed(k delivery.Kind, notifier string, due time.Time) store.Claimed {
	return store.Claimed{Delivery: delivery.Delivery{Kind: k, Notifier: notifier}, Due: due, Now: noon}
}

// lows are the marks that a claim of these notifiers would begin at.
func lows(m *marks, notifiers ...string) map[string][4]time.Time {
	lanes := make([]store.Lane, len(notifiers))
	for i, n := range notifiers {
		lanes[i] = store.Lane{Notifier: n}
	}
	m.set(lanes)
	out := map[string][4]time.Time{}
	for _, l := range lanes {
		out[l.Notifier] = l.Low
	}
	return out
}

// A mark follows what was taken, per notifier and priority, with a margin; a page leaves none.
func TestMarksFollowWhatWasTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMarks()
		if !m.set(nil) {
			t.Error("the first claim is no full scan")
		}
		m.seen([]store.Claimed{
			claimed(delivery.Card, "a", noon), claimed(delivery.Card, "a", noon.Add(-time.Minute)), claimed(delivery.Bulk, "a", noon.Add(time.Second)),
			claimed(delivery.Page, "a", noon), claimed(delivery.Call, "b", noon),
		})
		got := lows(m, "a", "b")
		if want := [4]time.Time{noon.Add(-lowMargin), {}, {}, noon.Add(time.Second - lowMargin)}; got["a"] != want {
			t.Errorf("a: %v", got["a"])
		}
		if got["b"] != [4]time.Time{} {
			t.Errorf("b: %v", got["b"])
		}
	})
}

// A full scan comes back after a while by itself: a row that was committed late is hidden no longer than that.
func TestMarksAreForgottenNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMarks()
		m.set(nil)
		m.seen([]store.Claimed{claimed(delivery.Event, "a", noon)})
		time.Sleep(fullScanEvery)
		if lows(m, "a")["a"] == [4]time.Time{} {
			t.Error("forgotten too early")
		}
		time.Sleep(time.Nanosecond)
		if got := lows(m, "a")["a"]; got != [4]time.Time{} {
			t.Errorf("still there: %v", got)
		}
		if lows(m, "a")["a"] == [4]time.Time{} {
			t.Error("one full scan forgets the marks for good")
		}
	})
}

// A claim that took nothing proves that nothing is left behind the marks only to who looks again without them.
func TestEmptyClaimForgetsTheMarks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMarks()
		m.set(nil)
		m.seen([]store.Claimed{claimed(delivery.Event, "a", noon)})
		m.seen(nil)
		if !m.set(nil) {
			t.Error("no full scan follows")
		}
		if got := lows(m, "a")["a"]; got != [4]time.Time{} {
			t.Errorf("%v", got)
		}
	})
}

// A nudge carries the oldest due time that was committed and lowers what would hide it, and nothing else.
func TestNudgeLowersTheMarks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMarks()
		m.set(nil)
		m.seen([]store.Claimed{claimed(delivery.Event, "a", noon), claimed(delivery.Card, "a", noon.Add(-time.Hour)), claimed(delivery.Bulk, "b", noon)})
		old := noon.Add(-time.Minute)
		m.lower(old)
		got := lows(m, "a", "b")
		if got["a"][2] != old.Add(-lowMargin) || got["b"][3] != old.Add(-lowMargin) || got["a"][0] != noon.Add(-time.Hour-lowMargin) {
			t.Errorf("%v", got)
		}
		m.lower(time.Time{})
		if !m.set(nil) {
			t.Error("a nudge without a time forgets nothing")
		}
	})
}

// The database's clock runs backward: what is due now may be older than every mark.
func TestClockThatRunsBackwardForgetsTheMarks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMarks()
		m.set(nil)
		m.seen([]store.Claimed{claimed(delivery.Event, "a", noon), claimed(delivery.Event, "b", noon)})
		back := claimed(delivery.Event, "b", noon.Add(-time.Hour))
		back.Now = noon.Add(-time.Hour)
		m.seen([]store.Claimed{back})
		got := lows(m, "a", "b")
		if got["a"] != [4]time.Time{} || got["b"][2] != back.Due.Add(-lowMargin) {
			t.Errorf("%v", got)
		}
	})
}

// Places are per notifier; a lane is there while one is free, and no claim asks for more than it may.
func TestPlaces(t *testing.T) {
	t.Parallel()
	p := newPlaces()
	f := &config.File{Notifiers: map[string]config.Notifier{"a": {Concurrency: 2}, "b": {Concurrency: 600}}}
	free := func() []store.Lane {
		lanes := p.free(f, claimMost)
		slices.SortFunc(lanes, func(x, y store.Lane) int { return strings.Compare(x.Notifier, y.Notifier) })
		return lanes
	}
	if got := free(); len(got) != 2 || got[0].Free != 2 || got[1].Free != claimMost {
		t.Errorf("%v", got)
	}
	p.take("a")
	p.take("a")
	p.take("b")
	if got := free(); len(got) != 1 || got[0].Notifier != "b" || got[0].Free != claimMost {
		t.Errorf("%v", got)
	}
	p.leave("a")
	if got := free(); len(got) != 2 || got[0].Free != 1 {
		t.Errorf("%v", got)
	}
	// The file gives fewer places than are taken.
	p.take("a")
	f.Notifiers["a"] = config.Notifier{Concurrency: 1}
	if got := free(); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// The wait before another try of reaching the database grows, and stays short enough to come back soon after it does.
func TestBackoffOfTheDatabase(t *testing.T) {
	t.Parallel()
	last := time.Duration(0)
	for try := range 100 {
		d := backoff(try)
		if d < last || d > retryPauseMax || d < retryPause {
			t.Fatalf("try %d: %s after %s", try, d, last)
		}
		last = d
	}
	if last != retryPauseMax {
		t.Errorf("it ends at %s", last)
	}
}

// A batch is what waits when the writer is free: never empty, never more than its bound, in order.
func TestGather(t *testing.T) {
	t.Parallel()
	c := make(chan *job, 10)
	var in []*job
	for range 5 {
		j := &job{}
		in = append(in, j)
		c <- j
	}
	if got := gather(c, 3); !slices.Equal(got, in[:3]) {
		t.Errorf("%d jobs", len(got))
	}
	close(c)
	if got := gather(c, 3); !slices.Equal(got, in[3:]) {
		t.Errorf("%d jobs", len(got))
	}
	if got := gather(c, 3); got != nil {
		t.Errorf("%d jobs after the end", len(got))
	}
}

// Trust in a lease ends before the lease does: by the call's timeout and grace, measured from before the claim was asked.
func TestTrustInALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &job{asked: time.Now(), lease: 70 * time.Second, notifier: config.Notifier{Timeout: 10 * time.Second}}
		time.Sleep(59*time.Second - time.Nanosecond)
		if !j.trust() {
			t.Error("not trusted while a call still fits")
		}
		time.Sleep(time.Nanosecond)
		if j.trust() {
			t.Error("trusted although a call may outlast the lease")
		}
	})
}

// The cache of links is bounded: beyond it, it starts anew.
func TestLinkCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newLinkCache()
	for n := range linksMost + 1 {
		c.put(delivery.Reference{MessageID: n + 1}, "x")
	}
	if n := len(c.m); n != 1 {
		t.Errorf("%d links", n)
	}
	if l, ok := c.get(delivery.Reference{MessageID: linksMost + 1}); !ok || l != "x" {
		t.Error("the newest is not there")
	}
}
