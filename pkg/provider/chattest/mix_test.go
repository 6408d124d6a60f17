package chattest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// outage is what a chat in trouble does: it stores messages and drops the connection, fails with and without the effect, and
// does not answer.
func outage(method string) []chattest.Fault {
	return []chattest.Fault{
		{Kind: chattest.Drop, Method: method, Probability: 0.2},
		{Kind: chattest.Error, Method: method, Status: 503, Probability: 0.2},
		{Kind: chattest.Error, Method: method, Status: 500, Probability: 0.1},
		{Kind: chattest.Error, Method: method, Status: 500, Happens: true, Probability: 0.1},
		{Kind: chattest.Hang, Method: method, Probability: 0.1},
	}
}

// what says of each request of a method what became of it, in order.
func what(c *chat, method string) string {
	var b strings.Builder
	for _, r := range c.Ledger(chattest.ByMethod(method)) {
		fmt.Fprintf(&b, "%s %d %s\n", r.Fault, r.Status, r.Effect)
	}
	return b.String()
}

// impatient gives a context for each call in turn, which ends when the chat holds the call's request.
func impatient(t *testing.T, c *chat) (next func() context.Context) {
	t.Helper()
	var mu sync.Mutex
	leave := func() {}
	last := 0 // the newest request that was seen to hang; the next may hang before this one is over
	held := func() bool {
		for _, r := range c.Recent(100) {
			if r.Fault == chattest.Hang && !r.Done && r.Sequence > last {
				last = r.Sequence
				return true
			}
		}
		return false
	}
	go func() {
		for c.Until(t.Context(), held) == nil {
			mu.Lock()
			leave()
			mu.Unlock()
		}
	}()
	return func() context.Context {
		mu.Lock()
		defer mu.Unlock()
		leave()
		ctx, cancel := context.WithCancel(t.Context())
		leave = cancel
		return ctx
	}
}

func TestFaultsOfDifferentKindsAreAMix(t *testing.T) {
	t.Parallel()
	const calls = 400
	run := func(seed uint64, others int) (*chat, string) {
		c := start(t, seed)
		for _, f := range outage("send") {
			c.MustFault(f)
		}
		for _, f := range outage("edit")[:3] {
			c.MustFault(f)
		}
		var wg sync.WaitGroup
		for range others { // requests of another method, in between
			wg.Go(func() { c.post(t.Context(), "edit") })
		}
		done := impatient(t, c)
		for range calls {
			c.post(done(), "send")
		}
		wg.Wait()
		return c, what(c, "send")
	}
	one, first := run(7, 0)
	_, again := run(7, 60)
	_, other := run(8, 0)
	if first != again {
		t.Error("with the same seed, and other requests in between, other requests were struck")
	}
	if first == other {
		t.Error("another seed struck the same requests")
	}

	count := map[string]int{}
	for _, line := range strings.Split(strings.TrimSuffix(first, "\n"), "\n") {
		count[line]++
	}
	for line, share := range map[string]float64{
		"drop 0 created": 0.2, "error 503 ": 0.2, "error 500 ": 0.1, "error 500 created": 0.1, "hang 0 ": 0.1, " 200 created": 0.3,
	} {
		if got := float64(count[line]) / calls; got < share-0.08 || got > share+0.08 {
			t.Errorf("%q: %.2f of the requests, want %.2f", line, got, share)
		}
		delete(count, line)
	}
	if len(count) != 0 {
		t.Errorf("and beside these: %v", count)
	}
	struck := 0
	for _, f := range one.Faults() {
		struck += f.Struck
	}
	if spared := strings.Count(first, " 200 created"); struck+spared != calls {
		t.Errorf("%d struck and %d spared of %d", struck, spared, calls)
	}
}

func TestSharesThatAreMoreThanAll(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.MustFault(chattest.Fault{Kind: chattest.Code, Code: "one", Probability: 0.7})
	c.MustFault(chattest.Fault{Kind: chattest.Code, Code: "two", Probability: 0.7})
	for range 60 {
		if got := c.post(t.Context(), "send"); got.status != 400 {
			t.Fatalf("spared: %+v", got)
		}
	}
	if f := c.Faults(); len(f) != 2 || f[0].Struck <= f[1].Struck || f[1].Struck == 0 {
		t.Errorf("%+v", f)
	}
	// What is certain takes the place of what was left to chance.
	c.MustFault(chattest.Fault{Kind: chattest.Code, Code: "three"})
	if f := c.Faults(); len(f) != 1 || f[0].Code != "three" {
		t.Errorf("%+v", f)
	}
}

// An outage that ends by itself lets go of what it holds.
func TestForEndsAHang(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	c.MustFault(chattest.Fault{Kind: chattest.Hang, Method: "send", For: chattest.Duration(100 * time.Millisecond)})
	c.MustFault(chattest.Fault{Kind: chattest.Error, Method: "edit", For: chattest.Duration(100 * time.Millisecond)})
	began := time.Now()
	if got := c.post(t.Context(), "send"); got.status != 200 || c.count() != 1 {
		t.Errorf("%+v", got)
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("it was held for %s", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Until(ctx, func() bool { return len(c.Faults()) == 0 }); err != nil {
		t.Fatal(err)
	}
	if got := c.post(t.Context(), "edit"); got.status != 200 {
		t.Errorf("%+v", got)
	}
}
