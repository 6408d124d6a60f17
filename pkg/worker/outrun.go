package worker

import (
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
)

// outrunFor is how long a delivery that was raised between its claim and its begin may begin on an older wish.
const outrunFor = time.Minute

// outrun remembers deliveries whose begin came too late for what was noted on them. The first time the newest is looked at again,
// which spares an edit. In a flood it would be late each time, and the incident never shown: the next begin goes ahead with what it
// has, and one more edit shows the rest. Where a slot of a pace was taken for it, the first does so already: a slot that is not used
// costs more than an edit. What asks a delivery to stop is heeded either way. The zero value is ready.
type outrun struct {
	mu    sync.Mutex
	since map[uuid.UUID]time.Time
	swept time.Time
}

func (o *outrun) note(id uuid.UUID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.since == nil {
		o.since, o.swept = map[uuid.UUID]time.Time{}, now
	}
	if now.Sub(o.swept) > outrunFor {
		maps.DeleteFunc(o.since, func(_ uuid.UUID, at time.Time) bool { return now.Sub(at) > outrunFor })
		o.swept = now
	}
	o.since[id] = now
}

func (o *outrun) lately(id uuid.UUID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, ok := o.since[id]
	return ok && time.Since(at) < outrunFor
}
