package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Expected is what is known of an incident before its alerts are taken.
type Expected struct {
	Key          string
	Fingerprints []string // of the alerts
}

// ahead is what a transaction that takes alerts of several incidents has read of all of them at once: each question costs a way
// there and back and a statement, whether it is about one of them or thirty. What is read ahead is given out once, so that nobody
// sees what the transaction itself has changed since; whoever asks again asks the database.
type ahead struct {
	keys       map[string]bool // what was asked; what they have not, is not there
	live, last map[string]Incident
	ids        []uuid.UUID            // of the live ones
	asked      map[uuid.UUID][]string // fingerprints, until they are written
	writes     map[uuid.UUID]int      // how many alerts
	alerts     map[uuid.UUID]map[string]Alert

	deliveries once[[]delivery.Delivery]
	steps      once[[]EscalationStep]
	shown      once[[]Alert]
	silences   once[bool]
	calm       bool // no silence holds, by the database's word
}

// once is one question about incidents.
type once[T any] struct {
	read bool
	left map[uuid.UUID]T
}

// of answers for one incident. The first time it asks for all that are known beforehand.
func (o *once[T]) of(ids []uuid.UUID, id uuid.UUID, ask func(ids []uuid.UUID) (map[uuid.UUID]T, error)) (T, error) {
	if v, ok := o.left[id]; ok {
		delete(o.left, id)
		return v, nil
	}
	all := []uuid.UUID{id}
	if !o.read && slices.Contains(ids, id) {
		o.read, all = true, ids
	}
	got, err := ask(all)
	if err != nil {
		var none T
		return none, err
	}
	v := got[id]
	if len(all) > 1 {
		o.left = make(map[uuid.UUID]T, len(all))
		for _, other := range all {
			if other != id {
				o.left[other] = got[other]
			}
		}
	}
	return v, nil
}

// ReadAhead locks the live incidents of the keys, all at once in the order of their ids, and lets what is asked of each of them
// later be read for all of them together. It is called once, first in the transaction. held are the keys whose incident somebody
// else has locked: whoever waits for them does it in another transaction, and holds up no other.
func (tx *Tx) ReadAhead(ctx context.Context, all []Expected) (held []string, err error) {
	a := ahead{keys: map[string]bool{}, live: map[string]Incident{}, last: map[string]Incident{}, asked: map[uuid.UUID][]string{}, writes: map[uuid.UUID]int{}, alerts: map[uuid.UUID]map[string]Alert{}}
	var keys []string
	for _, e := range all {
		keys = append(keys, e.Key)
	}
	live, err := tx.q.LockLiveIncidents(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("lock the incidents: %w", err)
	}
	for _, r := range live {
		a.live[r.Key] = toIncident(r)
		a.ids = append(a.ids, r.ID)
	}
	if len(live) < len(keys) {
		if held, err = tx.others(ctx, &a, keys); err != nil {
			return nil, err
		}
	}
	var ids []uuid.UUID
	var marks []string
	for _, e := range all {
		a.keys[e.Key] = !slices.Contains(held, e.Key)
		if inc, ok := a.live[e.Key]; ok {
			a.asked[inc.ID], a.writes[inc.ID], a.alerts[inc.ID] = e.Fingerprints, len(e.Fingerprints), map[string]Alert{}
			for _, mark := range e.Fingerprints {
				ids, marks = append(ids, inc.ID), append(marks, mark)
			}
		}
	}
	if len(ids) > 0 {
		rows, err := tx.q.AlertsByFingerprints(ctx, ids, marks)
		if err != nil {
			return nil, fmt.Errorf("read the incidents' alerts: %w", err)
		}
		for _, r := range rows {
			alert, err := toAlert(r)
			if err != nil {
				return nil, err
			}
			a.alerts[alert.IncidentID][alert.Fingerprint] = alert
		}
	}
	tx.ahead = a
	return held, nil
}

// others finds which keys have an incident that somebody holds, and the last incidents of those that have none.
func (tx *Tx) others(ctx context.Context, a *ahead, keys []string) (held []string, err error) {
	there, err := tx.q.LiveKeys(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("look for the incidents: %w", err)
	}
	var without []string
	for _, k := range keys {
		switch _, ours := a.live[k]; {
		case ours:
		case slices.Contains(there, k):
			held = append(held, k)
		default:
			without = append(without, k)
		}
	}
	if len(without) == 0 {
		return held, nil
	}
	last, err := tx.q.LastResolvedIncidents(ctx, without)
	if err != nil {
		return nil, fmt.Errorf("look for the last incidents: %w", err)
	}
	for _, r := range last {
		a.last[r.Key] = toIncident(r)
	}
	return held, nil
}

// LiveIncident locks the open or acknowledged incident of a key.
func (tx *Tx) LiveIncident(ctx context.Context, key string) (Incident, bool, error) {
	if tx.ahead.keys[key] {
		inc, ok := tx.ahead.live[key]
		return inc, ok, nil
	}
	return maybe(toIncident)(tx.q.LockLiveIncident(ctx, key))
}

// LastResolved is the incident of a key that was resolved last. It is not locked: it changes no more.
func (tx *Tx) LastResolved(ctx context.Context, key string) (Incident, bool, error) {
	if _, live := tx.ahead.live[key]; tx.ahead.keys[key] && !live {
		inc, ok := tx.ahead.last[key]
		return inc, ok, nil
	}
	rows, err := tx.q.LastResolvedIncidents(ctx, []string{key})
	if err != nil || len(rows) == 0 {
		return Incident{}, false, err
	}
	return toIncident(rows[0]), true, nil
}

// AlertsByFingerprint finds those of the fingerprints that an incident has, by fingerprint.
func (tx *Tx) AlertsByFingerprint(ctx context.Context, incidentID uuid.UUID, fingerprints []string) (map[string]Alert, error) {
	if asked := tx.ahead.asked[incidentID]; len(fingerprints) <= len(asked) && !slices.ContainsFunc(fingerprints, func(f string) bool { return !slices.Contains(asked, f) }) {
		return tx.ahead.alerts[incidentID], nil
	}
	ids := make([]uuid.UUID, len(fingerprints))
	for n := range ids {
		ids[n] = incidentID
	}
	rows, err := tx.q.AlertsByFingerprints(ctx, ids, fingerprints)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Alert, len(rows))
	for _, r := range rows {
		a, err := toAlert(r)
		if err != nil {
			return nil, err
		}
		out[a.Fingerprint] = a
	}
	return out, nil
}

// flood is how many alerts an incident has of which a few are found by an index of their own. Fewer are read and sorted all,
// which is faster.
const flood = 500

// ShownAlerts are the first alerts of an incident, firing first, newest first, for what is done with each further alert: their cost
// does not grow with those that there are. What this transaction has written of them may be missing in it, where they were read ahead.
func (tx *Tx) ShownAlerts(ctx context.Context, inc Incident, limit int) ([]Alert, error) {
	limit = min(limit, 10_000)
	_, tx.holding = tx.ahead.writes[inc.ID] // what is gathered may go later, with that of the others
	defer func() { tx.holding = false }()
	if inc.Firing+inc.Resolved > flood {
		rows, err := tx.q.AlertsOfFlood(ctx, inc.ID, limit)
		if err != nil {
			return nil, err
		}
		return convert(rows, toAlert)
	}
	return tx.ahead.shown.of(tx.few(), inc.ID, func(ids []uuid.UUID) (map[uuid.UUID][]Alert, error) {
		mosts := make([]int, len(ids))
		for n, id := range ids {
			// Those that this transaction writes may leave their place in the row to others.
			mosts[n] = limit + tx.ahead.writes[id]
		}
		rows, err := tx.q.AlertsOfIncidents(ctx, ids, mosts)
		if err != nil {
			return nil, err
		}
		return byIncident(rows, toAlert, func(a Alert) uuid.UUID { return a.IncidentID })
	})
}

// few are the incidents read ahead that are no floods.
func (tx *Tx) few() []uuid.UUID {
	var ids []uuid.UUID
	for _, inc := range tx.ahead.live {
		if inc.Firing+inc.Resolved <= flood {
			ids = append(ids, inc.ID)
		}
	}
	return ids
}

// Deliveries locks and returns the deliveries of an incident, by id.
func (tx *Tx) Deliveries(ctx context.Context, incidentID uuid.UUID) ([]delivery.Delivery, error) {
	return tx.ahead.deliveries.of(tx.ahead.ids, incidentID, func(ids []uuid.UUID) (map[uuid.UUID][]delivery.Delivery, error) {
		rows, err := tx.q.LockDeliveriesOfIncidents(ctx, ids)
		if err != nil {
			return nil, err
		}
		return byIncident(rows, func(r query.LockDeliveriesOfIncidentsRow) (delivery.Delivery, error) {
			return toDelivery(query.ClaimRow(r))
		},
			func(d delivery.Delivery) uuid.UUID { return d.IncidentID })
	})
}

// Steps locks and returns the steps of an incident's escalations, in order.
func (tx *Tx) Steps(ctx context.Context, incidentID uuid.UUID) ([]EscalationStep, error) {
	return tx.ahead.steps.of(tx.ahead.ids, incidentID, func(ids []uuid.UUID) (map[uuid.UUID][]EscalationStep, error) {
		rows, err := tx.q.StepsOfIncidents(ctx, ids)
		if err != nil {
			return nil, err
		}
		return byIncident(rows, toStep, func(s EscalationStep) uuid.UUID { return s.IncidentID })
	})
}

// AnySilence says whether any silence holds, or keeps something of the incident back. Most of the time none does, and one
// question is enough: created says that the transaction has opened the incident, so that nothing of it is kept back.
func (tx *Tx) AnySilence(ctx context.Context, incidentID uuid.UUID, created bool) (bool, error) {
	if created && tx.ahead.calm {
		return false, nil
	}
	return tx.ahead.silences.of(tx.ahead.ids, incidentID, func(ids []uuid.UUID) (map[uuid.UUID]bool, error) {
		r, err := tx.q.AnySilences(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("look for silences: %w", err)
		}
		tx.ahead.calm = !r.Found
		out := map[uuid.UUID]bool{}
		for _, id := range ids {
			out[id] = r.Found || slices.Contains(r.Keeping, id)
		}
		return out, nil
	})
}

// byIncident sorts rows by what they belong to, and keeps their order.
func byIncident[R, T any](rows []R, f func(R) (T, error), of func(T) uuid.UUID) (map[uuid.UUID][]T, error) {
	out := map[uuid.UUID][]T{}
	for _, r := range rows {
		v, err := f(r)
		if err != nil {
			return nil, err
		}
		out[of(v)] = append(out[of(v)], v)
	}
	return out, nil
}
