package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// doubtJSON is delivery.Doubt as the row keeps it.
type doubtJSON struct {
	Effect   int       `json:"effect"`
	Key      string    `json:"key"`
	Address  string    `json:"address"`
	Since    time.Time `json:"since"`
	Revision int       `json:"revision"`
	Through  int       `json:"through,omitempty"`
	Last     time.Time `json:"last,omitzero"`
	Scans    int       `json:"scans,omitempty"`
	Scanned  time.Time `json:"scanned,omitzero"`
	Blind    bool      `json:"blind,omitempty"`
}

// errRow is a row that holds what this version can't read.
var errRow = errors.New("the row can't be read")

// toDelivery turns a row into what decisions need. The rows of all queries that read whole deliveries have one shape.
func toDelivery(r query.ClaimRow) (delivery.Delivery, error) {
	d := delivery.Delivery{
		ID: r.ID, IncidentID: deref(r.IncidentID), ContentID: deref(r.ContentID), Kind: delivery.Kind(r.Kind), Notifier: r.Notifier, Target: r.Target,
		State: delivery.State(r.State), Reason: r.Reason, Effect: r.Effect, Desired: r.Desired, Applied: r.Applied,
		Attempts: r.Attempts, Tries: r.Tries, CardID: deref(r.CardID), WaitUntil: deref(r.WaitUntil), ExpiresAt: deref(r.ExpiresAt), CreatedAt: r.CreatedAt,
		Form: delivery.ParseForm(r.Form), Denials: int(r.Denials), Queue: deref(r.Queue), Overdue: r.Overdue > 0,
		Token: deref(r.LeaseToken), Version: int64(r.Version), OpenAttempt: deref(r.OpenAttempt),
	}
	if len(r.Reference) > 0 {
		if err := json.Unmarshal(r.Reference, &d.Reference); err != nil {
			return d, fmt.Errorf("delivery %s: reference: %w: %w", r.ID, errRow, err)
		}
	}
	if len(r.Doubt) > 0 {
		var j doubtJSON
		if err := json.Unmarshal(r.Doubt, &j); err != nil {
			return d, fmt.Errorf("delivery %s: doubt: %w: %w", r.ID, errRow, err)
		}
		dt := delivery.Doubt(j)
		d.Doubt = &dt
	}
	if r.StopState != nil {
		d.Stop = &delivery.Stop{State: delivery.State(*r.StopState), Reason: deref(r.StopReason)}
	}
	return d, nil
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func nonzero(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

func refText(r delivery.Reference) string {
	if r.IsZero() {
		return ""
	}
	b, _ := json.Marshal(r) // strings and numbers only: can't fail
	return string(b)
}

func doubtText(d *delivery.Doubt) string {
	if d == nil {
		return ""
	}
	b, _ := json.Marshal(doubtJSON(*d))
	return string(b)
}

// byID sorts a batch by its deliveries: the statement locks rows in the order of its values, and everybody locks by id.
func byID[T any](batch []T, id func(T) uuid.UUID) []T {
	return slices.SortedFunc(slices.Values(batch), func(a, b T) int {
		x, y := id(a), id(b)
		return bytes.Compare(x[:], y[:])
	})
}

func stepID(s delivery.Step) uuid.UUID { return s.From().ID }

// applyParams lays steps out in columns, as one statement takes them, sorted by id.
func applyParams(steps []delivery.Step) query.ApplyParams {
	var p query.ApplyParams
	for _, s := range byID(steps, stepID) {
		c := s.Change()
		p.Ids = append(p.Ids, c.ID)
		p.Tokens = append(p.Tokens, c.ExpectToken)
		p.Versions = append(p.Versions, int(c.ExpectVersion))
		p.Notes = append(p.Notes, c.Notes())
		p.States = append(p.States, string(c.State))
		p.Reasons = append(p.Reasons, c.Reason)
		p.Sentences = append(p.Sentences, c.Sentence)
		p.Effects = append(p.Effects, c.Effect)
		p.Desireds = append(p.Desireds, c.Desired)
		p.Applieds = append(p.Applieds, c.Applied)
		p.Refs = append(p.Refs, refText(c.Reference))
		p.Tries = append(p.Tries, c.Tries)
		p.Doubts = append(p.Doubts, doubtText(c.Doubt))
		var stop delivery.Stop
		if c.Stop != nil {
			stop = *c.Stop
		}
		p.StopStates = append(p.StopStates, string(stop.State))
		p.StopReasons = append(p.StopReasons, stop.Reason)
		p.Nexts = append(p.Nexts, int(c.Next))
		p.Delays = append(p.Delays, c.Delay.Seconds())
		p.Jitters = append(p.Jitters, jitter(c))
		p.Releases = append(p.Releases, c.Release)
		p.Closes = append(p.Closes, c.Closes)
		p.Renews = append(p.Renews, c.Renew)
		p.Expires = append(p.Expires, c.Expires.Seconds())
		p.Forms = append(p.Forms, c.Form.String())
		p.Denials = append(p.Denials, c.Denials)
		p.Queues = append(p.Queues, c.Queue)
		p.Overdues = append(p.Overdues, c.Overdue)
	}
	return p
}

// jitter is the largest share by which SQL may lengthen a delay.
func jitter(c delivery.Change) float64 {
	if c.Jitter {
		return 0.1
	}
	return 0
}
