package delivery

import "time"

// The times of looking up an effect in doubt, before it is repeated.
const (
	// LookGrace is how long after the end of an attempt's timeout its request may still be on its way.
	LookGrace = 10 * time.Second
	// looksNeeded complete look-ups, lookGap apart, must not find it before it counts as not made.
	looksNeeded = 2
	lookGap     = 30 * time.Second
	// lookPause is the wait after a look-up that could not be done, and lookPatience how long that goes on after the last
	// attempt in doubt: then the policy decides as if nobody could be asked.
	lookPause    = 10 * time.Second
	lookPatience = 15 * time.Minute
)

// looks says that the next step on a doubt is to look it up. after is how long after its beginning an attempt can be looked
// up; 0: the provider can't be asked. A page does not wait for it: a second ring is better than a late one.
func (d Delivery) looks(after time.Duration) bool {
	switch d.Kind {
	case Page, Call, SMS:
		return false
	}
	return after > 0 && d.Doubt != nil && !d.edits() && !d.Doubt.Blind && d.Doubt.Scans < looksNeeded
}

// lookIn is how long to wait for the next look-up.
func (d Delivery) lookIn(now time.Time, after time.Duration) time.Duration {
	at := d.Doubt.last().Add(after)
	if next := d.Doubt.Scanned.Add(lookGap); d.Doubt.Scans > 0 && next.After(at) {
		at = next
	}
	return max(at.Sub(now), 0)
}

// last is when the latest attempt in doubt began.
func (d Doubt) last() time.Time {
	if d.Last.IsZero() {
		return d.Since // a row of an earlier version
	}
	return d.Last
}

// Look is what a look-up of an effect in doubt came to.
type Look struct {
	Found      Reference     // zero: it was not seen
	Complete   bool          // all of the place was read
	Blind      bool          // it can't be read before a person mends something
	RetryAfter time.Duration // not complete: the provider asks for this much rest
	Sentence   string        // blind: what a person should do
}

// Looked decides what a look-up changes: found is adopted, with one edit to follow where the card shows something newer by
// now; not found, completely and twice, lets it be made again; what can't be looked up is left to the policy. now is the
// database's clock.
func (d Delivery) Looked(now time.Time, l Look) Step {
	c := d.stay()
	if d.Doubt == nil { // late evidence lifted it meanwhile
		return d.again(c, 0, false, "doubt", "")
	}
	doubt := *d.Doubt
	switch {
	case !l.Found.IsZero():
		return d.adopt(c, l.Found)
	case l.Blind:
		doubt.Blind = true
	case l.Complete:
		doubt.Scans, doubt.Scanned = doubt.Scans+1, now
	case now.Sub(doubt.last()) > lookPatience:
		doubt.Blind = true
	default:
		return d.again(c, max(l.RetryAfter, lookPause), true, "doubt", l.Sentence)
	}
	c.Doubt = &doubt
	delay := time.Duration(0)
	if !doubt.Blind && doubt.Scans < looksNeeded {
		delay = lookGap
	}
	return d.again(c, delay, false, "doubt", l.Sentence)
}

// adopt takes what a look-up found for what the attempt in doubt has made. It shows at least the lowest revision in doubt.
func (d Delivery) adopt(c Change, ref Reference) Step {
	shown := d.Doubt.Revision
	if d.Kind == Thread {
		shown = d.Doubt.Through
	} else {
		c.Reference = ref
	}
	c.Applied = max(d.Applied, min(shown, d.Desired))
	return d.done(c, "reconciled")
}
