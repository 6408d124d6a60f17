package delivery

import "time"

// OnUnknown is which way a kind errs when an attempt may have had an effect that nobody saw.
type OnUnknown string

// Retry risks a second message; Hold risks silence and asks a person.
const (
	Retry OnUnknown = "retry"
	Hold  OnUnknown = "hold"
)

// Policy is how patient a kind is. All of it is configuration (kinds: in the file).
type Policy struct {
	OnUnknown OnUnknown
	Lifetime  time.Duration // from creation; 0: bounded by its incident only
	Wait      time.Duration // page: longest wait for the card's first attempt
}

// DefaultPolicy is the policy of a kind that the file does not mention.
func DefaultPolicy(k Kind) Policy {
	switch k {
	case Page:
		return Policy{OnUnknown: Retry, Wait: 5 * time.Second}
	case Call, SMS:
		return Policy{OnUnknown: Hold, Lifetime: time.Hour}
	case Notice:
		return Policy{OnUnknown: Retry, Lifetime: time.Hour}
	case Event:
		return Policy{OnUnknown: Retry, Lifetime: 24 * time.Hour}
	}
	return Policy{OnUnknown: Retry} // card, thread: as long as their incident; bulk: its job's window
}

// Retries is how often and how long a notifier knocks again. It is read at each attempt.
type Retries struct {
	Capped   bool          // Count is set; else only lifetime, acknowledgement and people end the knocking
	Count    int           // further tries after the first
	Delay    time.Duration // before the first further try; doubles with each
	MaxDelay time.Duration // bound of the doubling
}

// DefaultRetries are the retries of a notifier that the file says nothing of.
var DefaultRetries = Retries{Delay: 2 * time.Second, MaxDelay: 5 * time.Minute}

// Backoff is the wait after the given number of failed and unknown tries (1 = after the first): Delay doubled with
// each try, at most MaxDelay. The jitter is added by SQL, which writes the time.
func (r Retries) Backoff(tries int) time.Duration {
	d := r.Delay
	for i := 1; i < tries && d < r.MaxDelay; i++ {
		d *= 2
	}
	return min(d, r.MaxDelay)
}
