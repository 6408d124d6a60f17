package worker

import (
	"sync"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// places counts what each notifier has under way on this replica: a hung one takes only its own.
type places struct {
	mu   sync.Mutex
	busy map[string]int
}

func newPlaces() *places { return &places{busy: map[string]int{}} }

// free returns the lanes with places left, at most most places altogether.
func (p *places) free(f *config.File, most int) []store.Lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lanes []store.Lane
	for name, n := range f.Notifiers {
		if free := n.Concurrency - p.busy[name]; free > 0 {
			lanes = append(lanes, store.Lane{Notifier: name, Free: min(free, most)})
		}
	}
	return lanes
}

func (p *places) take(notifier string) {
	p.mu.Lock()
	p.busy[notifier]++
	p.mu.Unlock()
}

func (p *places) leave(notifier string) {
	p.mu.Lock()
	p.busy[notifier]--
	p.mu.Unlock()
}

// marks are the low watermarks of the claim's index scans, per notifier and priority 1 to 4. They spare the scan the
// dead entries of what is done already; a row committed late with an older due time hides behind one until the next
// full scan, so pages have none, nudges lower them, and an empty claim forgets them.
type marks struct {
	mu    sync.Mutex
	low   map[string]*[4]time.Time
	full  time.Time // when a full scan is due, by the local monotonic clock
	clock time.Time // newest time of the database's clock seen: when it runs backward, all marks are forgotten
}

func newMarks() *marks { return &marks{low: map[string]*[4]time.Time{}} }

// set puts the marks into lanes. It says whether this claim scans from the start, as one does every fullScanEvery.
func (m *marks) set(lanes []store.Lane) (full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.After(m.full) {
		m.full = now.Add(fullScanEvery)
		return true
	}
	for i := range lanes {
		if l, ok := m.low[lanes[i].Notifier]; ok {
			lanes[i].Low = *l
		}
	}
	return false
}

// seen raises the marks to what a claim has taken: it took the oldest first, so what remains is not older, but for rows
// that were locked or committed late. A claim that took nothing leaves none.
func (m *marks) seen(rows []store.Claimed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(rows) == 0 {
		clear(m.low)
		m.full = time.Time{}
		return
	}
	for _, r := range rows {
		if r.Now.Before(m.clock.Add(-time.Second)) {
			clear(m.low)
		}
		m.clock = r.Now
		p := r.Kind.Priority()
		if p == 0 {
			continue
		}
		l := m.low[r.Notifier]
		if l == nil {
			l = &[4]time.Time{}
			m.low[r.Notifier] = l
		}
		if due := r.Due.Add(-lowMargin); due.After(l[p-1]) {
			l[p-1] = due
		}
	}
}

// lower makes sure that rows due since oldest are seen.
func (m *marks) lower(oldest time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if oldest.IsZero() {
		clear(m.low)
		m.full = time.Time{}
		return
	}
	for _, l := range m.low {
		for i := range l {
			if oldest.Before(l[i]) {
				l[i] = oldest.Add(-lowMargin)
			}
		}
	}
}
