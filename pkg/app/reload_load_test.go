package app

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// The file changes again and again under load, with notifiers that come and go: nothing is lost, nothing goes out through a
// notifier that the file in force has removed, and nothing grows. TOCSIN_RELOADS sets how often; then it runs alone, and what
// grows can be measured.
func TestReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	reloads, alone := 60, false
	if v := os.Getenv("TOCSIN_RELOADS"); v != "" {
		alone = true
		if _, err := fmt.Sscan(v, &reloads); err != nil {
			t.Fatal(err)
		}
	}
	reloads += reloads % 2
	dir, receiver := t.TempDir(), newReceiver(t)
	file := func(guest bool) string {
		rest := fmt.Sprintf("notifiers:\n  steady: {type: log, path: %q}\n  hook: {type: webhook, url: %q, concurrency: 16, pace: {destination: off}}\n", filepath.Join(dir, "steady"), receiver.url+"/hook")
		notify := "[steady, hook]"
		if guest {
			rest += fmt.Sprintf("  guest: {type: webhook, url: %q, concurrency: 16, pace: {destination: off}}\n", receiver.url+"/guest")
			notify = "[steady, hook, guest]"
		}
		return rest + "routes: [{match: \"#\", notify: " + notify + "}]\n"
	}
	s := serveFile(t, storetest.New(t), file(true))
	s.reload()
	early := measure(alone) // at rest, as the last look
	load, endLoad := context.WithCancel(t.Context())
	var sent atomic.Int64
	var source sync.WaitGroup
	for range 4 { // 100 alerts a second, where the machine can
		source.Go(func() {
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-load.Done():
					return
				case <-tick.C:
				}
				if got := s.fire(fmt.Sprint("job", sent.Add(1))); got != http.StatusAccepted {
					t.Errorf("an alert: %d", got)
				}
			}
		})
	}
	var absent [][2]time.Time // when the guest was in no file, by the database's clock
	now := func() time.Time {
		at, err := s.app.store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	began := time.Now()
	for i := range reloads {
		s.write(file(i%2 == 1) + fmt.Sprintf("# %d\n", i))
		if i%2 == 1 {
			absent[len(absent)-1][1] = now()
		}
		s.reload()
		if i%2 == 0 {
			absent = append(absent, [2]time.Time{now()})
		}
		if i%10 == 0 { // long enough that what was on its way to the guest would have been called
			eventually(t, "nothing is on its way to the guest", func() bool {
				return one[bool](t, s.db, "select count(*) = 0 from delivery where notifier = 'guest' and lease_token is not null")
			})
		}
	}
	took := time.Since(began)
	s.write(file(true)) // the last one had the guest too: there is an even number of reloads
	s.reload()
	endLoad()
	source.Wait()
	comes(t, s.db, "all is sent", "select count(*) = 0 from delivery where next_at is not null")
	// What a call and a request leave open for a moment closes by itself.
	var late grown
	eventually(t, "goroutines and open files are as few as before", func() bool {
		late = measure(alone)
		return late.Goroutines <= early.Goroutines+20 && late.Files <= early.Files+20
	})
	if late.Heap > early.Heap+16<<20 {
		t.Errorf("the heap has grown from %d to %d", early.Heap, late.Heap)
	}
	t.Logf("%d reloads in %s under %d alerts; %d calls were put off by a reload; from %+v to %+v", reloads, took.Round(time.Millisecond), sent.Load(),
		one[int](t, s.db, "select count(*) from attempt where reason = 'reload'"), early, late)
	for _, name := range []string{"steady", "hook"} {
		if n := one[int](t, s.db, "select count(*) from delivery where notifier = $1 and state = 'sent'", name); n != int(sent.Load()) || n == 0 {
			t.Errorf("%d alerts, %d of them sent through %s", sent.Load(), n, name)
		}
	}
	if n := one[int](t, s.db, "select count(*) from delivery where state <> 'sent'"); n != 0 {
		t.Errorf("%d deliveries did not go out", n)
	}
	if n := one[int](t, s.db, "select count(*) from delivery where notifier = 'guest'"); n == 0 || n == int(sent.Load()) {
		t.Errorf("%d of %d alerts were for the guest: it has not come and gone", n, sent.Load())
	}
	for _, span := range absent {
		if n := one[int](t, s.db, "select count(*) from attempt a join delivery d on d.id = a.delivery_id where d.notifier = 'guest' and a.evidence <> 'not_called' and a.started_at > $1 and a.finished_at < $2", span[0], span[1]); n != 0 {
			t.Errorf("%d calls through the guest between %s and %s, when no file had it", n, span[0], span[1])
		}
	}
}

// grown is what must not grow.
type grown struct {
	Goroutines, Files int
	Heap              uint64
}

// measure looks at this process. Beside other tests it says nothing.
func measure(alone bool) (g grown) {
	if !alone {
		return g
	}
	runtime.GC()
	runtime.GC() // what finalizers have let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd") // elsewhere: none
	return grown{Goroutines: runtime.NumGoroutine(), Files: len(files), Heap: m.HeapAlloc}
}
