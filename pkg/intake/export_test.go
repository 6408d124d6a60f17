package intake

import (
	"context"
	"sync"
	"time"
)

// AcceptTogether accepts groups that have all come before the next transaction begins.
func (i *Intake) AcceptTogether(ctx context.Context, groups ...Group) ([]Result, []error) {
	results, errs := make([]Result, len(groups)), make([]error, len(groups))
	q := &i.queue
	q.mu.Lock()
	most := q.most
	q.most = 0 // nothing leaves
	q.mu.Unlock()
	var all sync.WaitGroup
	for n, g := range groups {
		done := make(chan struct{})
		all.Go(func() {
			defer close(done)
			results[n], errs[n] = i.Accept(ctx, g)
		})
		i.queued(n+1, done) // in this order
	}
	q.mu.Lock()
	q.most = most
	i.begin()
	q.mu.Unlock()
	all.Wait()
	return results, errs
}

// queued waits until so many groups stand in line, or the last one does not.
func (i *Intake) queued(n int, refused <-chan struct{}) {
	for {
		i.queue.mu.Lock()
		there := len(i.queue.waiting)
		i.queue.mu.Unlock()
		select {
		case <-refused:
			return
		case <-time.After(time.Millisecond):
			if there >= n {
				return
			}
		}
	}
}

// Gone says that nothing waits and nothing is under way.
func (i *Intake) Gone() bool {
	i.queue.mu.Lock()
	defer i.queue.mu.Unlock()
	return len(i.queue.waiting)+len(i.queue.busy)+i.queue.flights == 0
}
