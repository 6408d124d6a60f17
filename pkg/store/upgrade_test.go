package store_test

import (
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// The statements of the version before migration 3, as far as they write: a replica of that version works on beside new ones
// until it is replaced.
const (
	oldAdd = `insert into delivery (id, incident_id, content_id, kind, priority, notifier, target, state, reason, sentence, next_at, desired, card_id, step_id,
		wait_until, expires_at, lifetime, created_at, settled_at)
		values ($1, $2, $2, 'card', 1, 'ops', 'channel', 'pending', '', '', clock_timestamp(), 1, null, null, null, null, null, clock_timestamp(), null)`
	oldClaim = `update delivery c set lease_token = gen_random_uuid(), lease_until = clock_timestamp() + interval '1 minute', next_at = clock_timestamp() + interval '1 minute',
		worker = 'old', version = c.version + 1 where id = $1 and next_at <= now()`
	oldBegin = `with begun as (
		update delivery d set attempts = d.attempts + 1, version = d.version + 1, open_attempt = $2, called_at = coalesce(d.called_at, clock_timestamp())
		where d.id = $1 and d.lease_until > clock_timestamp() and d.open_attempt is null returning d.*)
		insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at)
		select b.open_attempt, b.id, b.attempts, b.effect, b.id || ':1', 1, 'create', 'C0123', 'old', b.lease_token, clock_timestamp() from begun b`
	oldFinish = `with done as (
		update delivery d set state = $3, reason = $4, sentence = '', effect = 1, desired = 1, applied = case when $3 = 'sent' then 1 else 0 end,
			reference = case when $3 = 'sent' then '{"channel": "C0123", "ts": "1.0"}'::jsonb end, tries = 0,
			doubt = null, stop_state = null, stop_reason = null, next_at = case when $3 = 'pending' then clock_timestamp() end,
			settled_at = case when $3 = 'pending' then null else clock_timestamp() end,
			announced_at = null, lease_token = null, lease_until = null, open_attempt = null, version = d.version + 1
		where d.id = $1 and d.open_attempt = $2 returning d.id)
		update attempt t set outcome = 'sent', evidence = 'answered', closed_by = 'worker', fault = '', reason = '', error = '', provider_code = '', http_status = 200,
			bytes_written = 1, duration_ms = 1, answer = '', finished_at = clock_timestamp() from done where t.id = $2 and t.outcome is null`
	oldApply = `update delivery d set state = $2, reason = $3, sentence = '', next_at = case when $2 = 'pending' then clock_timestamp() end, lease_token = null, lease_until = null,
		open_attempt = null, settled_at = case when $2 = 'pending' then null else clock_timestamp() end, announced_at = null, version = d.version + 1 where d.id = $1`
	oldTakenOver = `update attempt set outcome = 'unknown', evidence = 'possibly_sent', closed_by = 'takeover', reason = 'takeover', error = '', finished_at = clock_timestamp(),
		duration_ms = 1 where delivery_id = $1 and outcome is null`
	oldLost = `insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at, finished_at,
		outcome, evidence, closed_by, fault, reason, error, provider_code, http_status, bytes_written, duration_ms, answer, reference)
		values (gen_random_uuid(), $1, 9, 1, 'k', 1, 'create', 'a', 'old', gen_random_uuid(), clock_timestamp(), clock_timestamp(), 'sent', 'answered', 'worker', '', 'row_lost', '', '', null, 0, 1, '', null)
		on conflict (id) do nothing`
	oldLate = `update attempt set late_outcome = 'sent', late_at = clock_timestamp(), late_reference = null where delivery_id = $1 and late_outcome is null and closed_by = 'takeover'`
)

// The statements of the version before migration 11, as far as they write what schedules, people and callbacks have changed since.
const (
	oldStep = `insert into escalation (id, incident_id, name, round, step, due_at, state) values ($1, $2, 'default', 1, $3, clock_timestamp(), 'due')
		on conflict (incident_id, name, round, step) do nothing`
	oldFire        = `update escalation set state = 'fired', due_at = null, fired_at = clock_timestamp() where id = $1 and state = 'due'`
	oldAcknowledge = `update incident set title = title, state = 'acknowledged', revision = revision + 1, sequence = sequence + 1, acknowledged_at = clock_timestamp(),
		acknowledged_by = 'Old', resolved_at = null, resolved_by = '', topic = topic where id = $1`
	oldCallback = `insert into callback (key, at) values ($1, clock_timestamp()) on conflict (key) do nothing`
	oldLink     = `insert into link_code (hash, provider, account_id, account, press, created_at, expires_at)
		values ('\x01', 'slack', 'U0NEW', 'new', '{"action": "ack", "incident_id": "i"}', clock_timestamp(), clock_timestamp() + interval '15 minutes')`
)

// changes runs a statement that must touch one row.
func (s *site) changes(sql string, args ...any) {
	s.t.Helper()
	tag, err := s.db.Exec(s.ctx(), sql, args...)
	if err != nil || tag.RowsAffected() != 1 {
		s.t.Fatalf("%s: %d rows, %v", sql, tag.RowsAffected(), err)
	}
}

// A replica of the version before adds, claims, begins and settles, also what a new one has made wait for its turn or has
// called overdue, of which it knows nothing.
func TestOldReplicaWorksBesideNewOnes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	id, attempt := store.NewID(), store.NewID()
	s.changes(oldAdd, id, inc.ID)
	s.changes(oldClaim, id)
	s.changes(oldBegin, id, attempt)
	s.changes(oldTakenOver, id)
	s.changes(oldLate, id)
	s.changes(oldLost, id)
	s.changes(oldApply, id, "pending", "")
	if c := s.take(alpha); c.ID != id || c.Form != (delivery.Form{}) || c.Queue != "" || c.Overdue || c.Denials != 0 {
		t.Errorf("%s", pretty(c))
	} else {
		s.queued(c, room, 0)
	}
	if n := get[int](s, "select count(*) from attempt_history where delivery_id = $1 and phase = '' and form = ''", id); n != 2 {
		t.Errorf("%d attempts of the old replica are read as whole messages", n)
	}

	// What waits for its turn here is claimed there, called and settled.
	for _, state := range []string{"pending", "sent"} {
		attempt = store.NewID()
		s.changes(oldClaim, id)
		s.changes(oldBegin, id, attempt)
		s.unchangedQueue(id, room) // the old one does not know of it
		s.changes(oldFinish, id, attempt, state, "")
	}
	s.inState(id, delivery.Sent, "")
	goes(t, "who comes after it", s.turns(ask(someone(delivery.Card, time.Now().Add(time.Hour)), room, onceASecond))[0])

	// The same without an attempt, by a cancel.
	other := s.add(inc, delivery.Card)
	s.queued(s.take(alpha), room, time.Minute)
	s.changes(oldApply, other, "canceled", "resolved")

	// And a page that is overdue: it ends there, and counts as what it is.
	page := s.add(inc, delivery.Page)
	c := s.take(alpha)
	s.settle(c.Queued(delivery.Facts{Now: c.Now, Policy: delivery.DefaultPolicy(delivery.Page)}, time.Minute, room, "paused", ""))
	if n := get[int](s, "select overdue::int from delivery where id = $1", page); n != 1 {
		t.Fatalf("overdue is %d", n)
	}
	s.changes(oldApply, page, "sent", "")
	if err := s.PassOver(t.Context(), page); err != nil {
		t.Error(err)
	}
}

// The same beside what a new replica makes of schedules, people and callbacks: nothing that it knows nothing of stops it, and it takes
// nothing of it away.
func TestOldReplicaWorksBesideSchedules(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")

	// Its steps are read, moved to the end of quiet hours, and fired by either.
	step := store.NewID()
	s.changes(oldStep, step, inc.ID, 0)
	s.tx(func(tx *store.Tx) error {
		all, err := tx.Steps(s.ctx(), inc.ID)
		if err != nil || len(all) != 1 || all[0].Rests || all[0].Held {
			t.Errorf("%+v, %v", all, err)
			return err
		}
		return tx.RestSteps(s.ctx(), all[0], -time.Second)
	})
	s.changes(oldFire, step)

	// A snooze outlives its acknowledgement, and is found when it is over.
	s.tx(func(tx *store.Tx) error {
		inc, err := tx.LockIncident(s.ctx(), inc.ID)
		at, until := tx.Now(), tx.Now().Add(time.Hour)
		inc.State, inc.AcknowledgedAt, inc.AcknowledgedBy, inc.SnoozedUntil = message.Acknowledged, &at, "Ana", &until
		if err != nil {
			return err
		}
		return tx.SaveIncident(s.ctx(), inc)
	})
	s.changes(oldAcknowledge, inc.ID)
	s.move(2 * time.Hour)
	s.tx(func(tx *store.Tx) error {
		over, err := tx.SnoozesOver(s.ctx(), 10)
		if err != nil || len(over) != 1 || over[0] != inc.ID {
			t.Errorf("%v, %v", over, err)
		}
		return err
	})

	// A press that the one has stored or applied is none for the other.
	if first, err := s.Receive(s.ctx(), store.Callback{Key: "new", Body: []byte(`{}`)}, time.Minute); err != nil || !first {
		t.Fatal(first, err)
	}
	if tag, err := s.db.Exec(s.ctx(), oldCallback, "new"); err != nil || tag.RowsAffected() != 0 {
		t.Errorf("the old one applies it too: %v, %v", tag, err)
	}
	s.changes(oldCallback, "old")
	if first, err := s.Receive(s.ctx(), store.Callback{Key: "old", Body: []byte(`{}`)}, time.Minute); err != nil || first {
		t.Errorf("stored again: %t, %v", first, err)
	}
	s.tx(func(tx *store.Tx) error {
		if first, err := tx.Callback(s.ctx(), "old"); err != nil || first {
			t.Errorf("applied again: %t, %v", first, err)
		}
		return nil
	})
	s.move(2 * time.Minute)
	if due, err := s.DueCallbacks(s.ctx(), time.Minute, 10); err != nil || len(due) != 1 || due[0].Key != "new" {
		t.Errorf("%+v, %v", due, err)
	}

	// Its code leads to whoever is linked here.
	s.changes(oldLink)
	s.tx(func(tx *store.Tx) error {
		c, err := tx.TakeLinkCode(s.ctx(), []byte{1})
		if err != nil || c.Press.Action != "ack" || c.Press.To != "" {
			t.Errorf("%+v, %v", c, err)
		}
		return err
	})

	// A notice about a shift waits for its time, and is sent by the old one.
	id, content := store.NewID(), store.NewID()
	s.tx(func(tx *store.Tx) error {
		if err := tx.PutContent(s.ctx(), store.Content{ID: content, Revision: 1, Body: []byte(`{}`)}); err != nil {
			return err
		}
		if err := tx.PutShiftNotice(s.ctx(), store.ShiftNotice{Schedule: "primary", User: "ana", What: "start", At: tx.Now(), Due: tx.Now(), DeliveryID: id, ContentID: content}); err != nil {
			return err
		}
		return tx.AddDeliveries(s.ctx(), store.NewDelivery{ID: id, ContentID: content, Kind: delivery.Notice, Notifier: ops, Target: "user:ana", Delay: time.Hour, Lifetime: time.Hour, FromDue: true})
	})
	if tag, err := s.db.Exec(s.ctx(), oldClaim, id); err != nil || tag.RowsAffected() != 0 {
		t.Errorf("claimed before its time: %v, %v", tag, err)
	}
	s.move(61 * time.Minute)
	attempt := store.NewID()
	s.changes(oldClaim, id)
	s.changes(oldBegin, id, attempt)
	s.changes(oldFinish, id, attempt, "sent", "")
	s.inState(id, delivery.Sent, "")
}
