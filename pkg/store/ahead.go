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

	fetched    bool // the following are
	deliveries once[[]delivery.Delivery]
	steps      once[[]EscalationStep]
	shown      once[[]Alert]
	silences   once[bool]
	calm       bool // no silence holds, by the database's word
	told       once[bool]
}

// once is one question about incidents, with the answers that are still to be given out.
type once[T any] map[uuid.UUID]T

// of gives an answer out, or asks.
func (o once[T]) of(id uuid.UUID, ask func(ids []uuid.UUID) (map[uuid.UUID]T, error)) (T, error) {
	if v, ok := o[id]; ok {
		delete(o, id)
		return v, nil
	}
	got, err := ask([]uuid.UUID{id})
	return got[id], err
}

// keep holds the answers about incidents; those who have none have the empty one.
func keep[T any](ids []uuid.UUID, got map[uuid.UUID]T) once[T] {
	o := make(once[T], len(ids))
	for _, id := range ids {
		o[id] = got[id]
	}
	return o
}

// readAhead is the first thing in a transaction, with its clock.
func (tx *Tx) readAhead(ctx context.Context, expected []Expected) (held []string, err error) {
	a := ahead{keys: map[string]bool{}, live: map[string]Incident{}, last: map[string]Incident{}, asked: map[uuid.UUID][]string{}, writes: map[uuid.UUID]int{}, alerts: map[uuid.UUID]map[string]Alert{}}
	var keys, keyOf, marks []string
	for _, e := range expected {
		keys = append(keys, e.Key)
		for _, mark := range e.Fingerprints {
			keyOf, marks = append(keyOf, e.Key), append(marks, mark)
		}
	}
	var live, last []query.Incident
	var there []string
	var alerts []query.Alert
	if err := tx.pipe.together(ctx,
		func() (err error) { tx.now, err = tx.q.ClockTimestamp(ctx); return err },
		func() (err error) { live, err = tx.q.LockLiveIncidents(ctx, keys); return err },
		func() (err error) { there, err = tx.q.LiveKeys(ctx, keys); return err },
		func() (err error) { last, err = tx.q.LastResolvedIncidents(ctx, keys); return err },
		func() (err error) { alerts, err = tx.q.AlertsByKey(ctx, keyOf, marks); return err },
	); err != nil {
		return nil, fmt.Errorf("lock the incidents: %w", err)
	}
	for _, r := range live {
		a.live[r.Key] = toIncident(r)
		a.ids = append(a.ids, r.ID)
	}
	for _, r := range last {
		a.last[r.Key] = toIncident(r)
	}
	for _, e := range expected {
		inc, ours := a.live[e.Key]
		switch {
		case ours:
			a.asked[inc.ID], a.writes[inc.ID], a.alerts[inc.ID] = e.Fingerprints, len(e.Fingerprints), map[string]Alert{}
		case slices.Contains(there, e.Key):
			held = append(held, e.Key)
			continue
		}
		a.keys[e.Key] = true
	}
	for _, r := range alerts {
		if a.alerts[r.IncidentID] == nil {
			continue // of one that somebody holds
		}
		alert, err := toAlert(r)
		if err != nil {
			return nil, err
		}
		a.alerts[alert.IncidentID][alert.Fingerprint] = alert
	}
	tx.ahead = a
	return held, nil
}

// fetch reads what a change of an incident asks for, of all that were locked, when the first of them asks.
func (tx *Tx) fetch(ctx context.Context, id uuid.UUID) error {
	a := &tx.ahead
	if a.fetched || !slices.Contains(a.ids, id) {
		return nil
	}
	a.fetched = true
	tx.holding = true // what is gathered is of no concern to it, and goes later with that of the others
	defer func() { tx.holding = false }()
	var deliveries map[uuid.UUID][]delivery.Delivery
	var steps map[uuid.UUID][]EscalationStep
	var shown map[uuid.UUID][]Alert
	var silences map[uuid.UUID]bool
	few := a.few()
	if err := tx.pipe.together(ctx,
		func() (err error) { deliveries, err = tx.deliveriesOf(ctx, a.ids); return err },
		func() (err error) { steps, err = tx.stepsOf(ctx, a.ids); return err },
		func() (err error) { silences, err = tx.silencesOf(ctx, a.ids); return err },
		func() error {
			rows, err := tx.q.AllAlertsOfIncidents(ctx, few)
			if err != nil {
				return err
			}
			shown, err = byIncident(rows, toAlert, func(a Alert) uuid.UUID { return a.IncidentID })
			return err
		},
	); err != nil {
		return fmt.Errorf("read what there is of the incidents: %w", err)
	}
	a.deliveries, a.steps, a.silences, a.shown = keep(a.ids, deliveries), keep(a.ids, steps), keep(a.ids, silences), keep(few, shown)
	return nil
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

// commonlyShown is how many alerts are read ahead; who asks for more asks the database.
const commonlyShown = 200

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
	if limit <= commonlyShown {
		if err := tx.fetch(ctx, inc.ID); err != nil {
			return nil, err
		}
	}
	return tx.ahead.shown.of(inc.ID, func([]uuid.UUID) (map[uuid.UUID][]Alert, error) {
		// Those that this transaction writes may leave their place in the row to others.
		alerts, err := tx.Alerts(ctx, inc.ID, limit+tx.ahead.writes[inc.ID])
		return map[uuid.UUID][]Alert{inc.ID: alerts}, err
	})
}

// few are the incidents read ahead of which all alerts are shown.
func (a *ahead) few() []uuid.UUID {
	var ids []uuid.UUID
	for _, inc := range a.live {
		if inc.Firing+inc.Resolved <= commonlyShown {
			ids = append(ids, inc.ID)
		}
	}
	return ids
}

// Deliveries locks and returns the deliveries of an incident, by id.
func (tx *Tx) Deliveries(ctx context.Context, incidentID uuid.UUID) ([]delivery.Delivery, error) {
	if err := tx.fetch(ctx, incidentID); err != nil {
		return nil, err
	}
	return tx.ahead.deliveries.of(incidentID, func(ids []uuid.UUID) (map[uuid.UUID][]delivery.Delivery, error) { return tx.deliveriesOf(ctx, ids) })
}

func (tx *Tx) deliveriesOf(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID][]delivery.Delivery, error) {
	rows, err := tx.q.LockDeliveriesOfIncidents(ctx, ids)
	if err != nil {
		return nil, err
	}
	return byIncident(rows, func(r query.LockDeliveriesOfIncidentsRow) (delivery.Delivery, error) {
		return toDelivery(query.ClaimRow(r))
	},
		func(d delivery.Delivery) uuid.UUID { return d.IncidentID })
}

// Steps locks and returns the steps of an incident's escalations, in order.
func (tx *Tx) Steps(ctx context.Context, incidentID uuid.UUID) ([]EscalationStep, error) {
	if err := tx.fetch(ctx, incidentID); err != nil {
		return nil, err
	}
	return tx.ahead.steps.of(incidentID, func(ids []uuid.UUID) (map[uuid.UUID][]EscalationStep, error) { return tx.stepsOf(ctx, ids) })
}

func (tx *Tx) stepsOf(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID][]EscalationStep, error) {
	rows, err := tx.q.StepsOfIncidents(ctx, ids)
	if err != nil {
		return nil, err
	}
	return byIncident(rows, toStep, func(s EscalationStep) uuid.UUID { return s.IncidentID })
}

// AnySilence says whether any silence holds, or keeps something of the incident back. Most of the time none does, and one
// question is enough: created says that the transaction has opened the incident, so that nothing of it is kept back.
func (tx *Tx) AnySilence(ctx context.Context, incidentID uuid.UUID, created bool) (bool, error) {
	if created && tx.ahead.calm {
		return false, nil
	}
	if err := tx.fetch(ctx, incidentID); err != nil {
		return false, err
	}
	return tx.ahead.silences.of(incidentID, func(ids []uuid.UUID) (map[uuid.UUID]bool, error) { return tx.silencesOf(ctx, ids) })
}

func (tx *Tx) silencesOf(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
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
}

// HasDeliveries says whether an incident has any delivery, of whatever state.
func (tx *Tx) HasDeliveries(ctx context.Context, incidentID uuid.UUID) (bool, error) {
	ask := func(ids []uuid.UUID) (map[uuid.UUID]bool, error) {
		with, err := tx.q.WithDeliveries(ctx, ids)
		out := map[uuid.UUID]bool{}
		for _, id := range with {
			out[id] = true
		}
		return out, err
	}
	if tx.ahead.told == nil && slices.Contains(tx.ahead.ids, incidentID) {
		got, err := ask(tx.ahead.ids)
		if err != nil {
			return false, err
		}
		tx.ahead.told = keep(tx.ahead.ids, got)
	}
	return tx.ahead.told.of(incidentID, ask)
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
