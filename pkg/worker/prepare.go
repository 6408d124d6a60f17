package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// reasonMoved is what a delivery says that was refused since its chat has another id now.
const reasonMoved = "destination:migrated"

// digestMost bounds the events that one reply of a thread tells.
const digestMost = 20

// prepare judges a claimed batch and makes its messages: doubt and policy first, then person, address and text, all
// before the attempt is recorded. What needs no call is settled or given back here, without an attempt.
func (w *Worker) prepare(f *config.File, batch []*job) {
	ctx, cancel := w.write()
	defer cancel()
	rows := make([]store.Claimed, len(batch))
	for i, j := range batch {
		rows[i] = j.Claimed
	}
	around, err := w.o.Store.Around(ctx, rows)
	if err != nil {
		w.o.Log.Warn("prepare failed, giving the batch back", zap.Error(err), zap.Int("deliveries", len(batch)))
		w.giveBack(batch, retryPause, "")
		return
	}
	w.takenOver(batch)
	if slices.ContainsFunc(batch, func(j *job) bool { return j.Reason == reasonMoved }) {
		// Another replica may have been told where to; asking the old address once more would only be refused once more.
		if err := w.readRests(ctx); err != nil {
			w.o.Log.Warn("where chats have moved to was not read", zap.Error(err))
		}
	}
	accounts := w.o.Accounts()
	f = f.WithOverrides(around.Overrides)
	var steps []delivery.Step
	settled := map[uuid.UUID]*job{}
	ready := make([]*job, 0, len(batch))
	for _, j := range batch {
		switch step := w.ready(f, j, around, accounts); {
		case step != nil:
			steps = append(steps, *step)
			settled[j.ID] = j
		case j.looks:
			go w.look(j)
		default:
			ready = append(ready, j)
		}
	}
	turns, err := w.takeTurns(ready)
	if err != nil {
		w.o.Log.Warn("whose turn it is could not be asked, giving back", zap.Error(err), zap.Int("deliveries", len(ready)))
		w.giveBack(ready, retryPause, "")
		ready = nil
	}
	for _, j := range ready {
		step, waits := turns[j]
		switch {
		case waits:
			steps = append(steps, step)
			settled[j.ID] = j
		case j.link != nil:
			go func() { // a look-up waits for nobody but its own page
				w.lookUp(j)
				w.begins <- j
			}()
		default:
			w.begins <- j
		}
	}
	w.settle(steps, settled)
}

// takenOver tells of leases that ran out. A card's first attempt is over by its takeover too: pages stop waiting.
func (w *Worker) takenOver(batch []*job) {
	var cards []delivery.Step
	for _, j := range batch {
		if j.TakenOver == nil {
			continue
		}
		w.o.Metrics.Takeovers.Inc()
		w.o.Log.Info("lease taken over, attempt closed as unknown", zap.String("delivery", j.ID.String()), zap.String("attempt", j.TakenOver.Attempt.ID.String()),
			zap.String("from", j.TakenOver.Worker), zap.String("notifier", j.Notifier), zap.String("kind", string(j.Kind)))
		if j.Kind == delivery.Card {
			cards = append(cards, j.Takeover(j.TakenOver.Attempt))
		}
	}
	w.unpark(cards)
}

// ready fills a job for its call, or returns the step that it needs instead.
func (w *Worker) ready(f *config.File, j *job, around store.Around, accounts []plan.Account) (step *delivery.Step) {
	defer func() {
		// A fault of ours must not take the process down: after a restart the same row would do it again.
		if p := recover(); p != nil {
			w.o.Log.Error("a delivery could not be prepared", zap.String("delivery", j.ID.String()), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			s := j.Reject("payload:compose", w.o.Redact(fmt.Sprint("Its message could not be made: ", p)))
			step = &s
		}
	}()
	n, known := f.Notifiers[j.Notifier]
	if !known {
		s := j.GiveBack(f.Worker.Poll, "")
		return &s // the file changed after the claim: another replica may know it
	}
	state, hasIncident := around.Incidents[j.IncidentID]
	facts := delivery.Facts{Now: j.Now, Policy: f.Kinds[j.Kind], Retries: n.Retries, Resolved: hasIncident && state == message.Resolved, Answered: hasIncident && state != message.Open}
	cards := around.Cards[j.IncidentID]
	facts.HasCard, facts.CardOver = len(cards) > 0, true
	facts.CardGone = j.Kind == delivery.Thread
	var parent store.Card
	for _, c := range cards {
		facts.CardOver = facts.CardOver && c.Over
		if j.Kind != delivery.Thread {
			// The card whose link a page carries: of the chat that the page goes to where there is one, else the first.
			here := f.Notifiers[c.Notifier].Type == n.Type && f.Notifiers[parent.Notifier].Type != n.Type
			if !c.Reference.IsZero() && (parent.ID == uuid.Nil || here) {
				facts.CardReady, parent = true, c
			}
			continue
		}
		if c.ID == j.CardID {
			facts.CardGone, facts.CardReady, parent = false, !c.Reference.IsZero(), c
			facts.CardDead = c.State.Settled() && c.State != delivery.Sent && c.Reference.IsZero()
		}
	}
	p, ok := w.o.Provider(j.Notifier)
	if !ok {
		s := j.GiveBack(f.Worker.Poll, "")
		return &s
	}
	facts.LookUp = w.lookUpAfter(n, p, j.Form)
	j.notifier, j.provider, j.facts, j.breaker = n, p, facts, breakerKey(f, n)
	j.env = delivery.Env{
		Policy: facts.Policy, Retries: n.Retries, Resolved: facts.Resolved, LookUp: facts.LookUp, Forms: n.Type == "slack" || n.Type == "telegram",
	}

	if j.Doubt != nil && j.Reference.IsZero() {
		for _, l := range around.Lates[j.ID] {
			if s, ok := j.Delivery.Late(j.env, l.Attempt, delivery.OutcomeSent, l.Reference); ok {
				return &s
			}
		}
	}
	v := j.Judge(facts)
	if v.Step != nil {
		return v.Step
	}
	if n.Off {
		s := j.Unreachable("notifier_off", fmt.Sprintf("The notifier %s is switched off in the file: set off to false, then send again.", n.Name))
		return &s
	}
	j.attempt = delivery.Attempt{ID: store.NewID(), Operation: v.Operation, Effect: j.Effect, Key: v.Key, Revision: v.Revision, Form: j.Form}
	var entries []card.Entry
	if step := w.address(f, j, v, parent, accounts); step != nil {
		return step
	}
	if step := w.keptBack(j); step != nil {
		return step
	}
	if j.looks = v.LookUp; j.looks {
		return nil
	}
	if j.Kind == delivery.Thread {
		// A digest of at most digestMost events; a range in doubt is read as it was.
		j.attempt.Revision = min(v.Revision, v.Since+digestMost)
		ctx, cancel := w.write()
		defer cancel()
		var err error
		if entries, err = w.o.Store.Timeline(ctx, j.IncidentID, v.Since, j.attempt.Revision, digestMost); err != nil {
			w.o.Log.Warn("the timeline could not be read, giving the thread back", zap.String("delivery", j.ID.String()), zap.Error(err))
			s := j.GiveBack(retryPause, "")
			return &s
		}
	}
	if err := w.compose(f, j, v, around.Contents[j.ContentID], parent, entries); err != nil {
		w.o.Log.Error("a message could not be made", zap.String("delivery", j.ID.String()), zap.Error(err))
		s := j.Reject("payload:compose", w.o.Redact("Its message could not be made: "+err.Error()))
		return &s
	}
	return nil
}

// address says where the call goes. A person is resolved now, when the call is made, unless an attempt in doubt binds
// the address; an edit or a reply goes where its object lies.
func (w *Worker) address(f *config.File, j *job, v delivery.Verdict, parent store.Card, accounts []plan.Account) *delivery.Step {
	j.call = provider.Call{Operation: v.Operation, Key: v.Key, Form: j.Form}
	account := j.notifier.Account()
	switch v.Operation {
	case delivery.OpEdit:
		j.call.Reference, j.attempt.Address = j.Reference, place(j.Reference)
	case delivery.OpReply:
		// A chat that moved has other message numbers: the provider sees that the address is not the reference's.
		j.call.Reference, j.attempt.Address = parent.Reference, w.rests.to(account, place(parent.Reference))
	default:
		person, err := plan.Resolve(f, accounts, j.Notifier, j.Target, j.Now)
		first, whose := w.owner(f, accounts, j.Notifier, v.Address)
		switch {
		case v.Address != "" && whose: // bound, and whoever the target means by now
			j.attempt.Address, j.name = first.Address, first.Name
		case v.Address != "" && !filled(v.Address): // the same, and nobody's by now
			j.attempt.Address = v.Address
		case err != nil:
			var u *plan.Unreachable
			if !errors.As(err, &u) {
				u = &plan.Unreachable{Reason: "no_linked_account", Sentence: err.Error()}
			}
			s := j.Unreachable(u.Reason, u.Sentence)
			return &s
		default:
			j.attempt.Address, j.name, j.planned = person.Address, person.Name, person.After
		}
	}
	if v.Operation == delivery.OpCreate {
		j.attempt.Address = w.rests.to(account, j.attempt.Address)
	}
	// The call goes to the address; the row, which is for reading, names a secret one as the file does. An attempt in
	// doubt binds such an address by the notifier, whose place it is.
	j.call.Address, j.attempt.Address = j.attempt.Address, w.o.Redact(j.attempt.Address)
	j.attempt.Queue = j.notifier.Queue(j.attempt.Address)
	return nil
}

// owner is the person to whom an address belongs that an attempt in doubt has bound, with the address as it is called: the
// row has it without secrets.
func (w *Worker) owner(f *config.File, accounts []plan.Account, notifier, address string) (plan.Person, bool) {
	if address == "" {
		return plan.Person{}, false
	}
	for _, u := range f.Users {
		name := cmp.Or(u.Name, u.ID)
		for _, c := range u.Contacts {
			if c.Via == notifier && c.Address != "" && w.o.Redact(c.Address) == address {
				return plan.Person{UserID: u.ID, Name: name, Address: c.Address}, true
			}
		}
		for _, a := range accounts {
			if a.UserID == u.ID && a.Provider == f.Notifiers[notifier].Type && w.o.Redact(a.AccountID) == address {
				return plan.Person{UserID: u.ID, Name: name, Address: a.AccountID}, true
			}
		}
	}
	return plan.Person{}, false
}

// filled says that an address was put down with ${NAME} in place of a secret: it can't be called as it stands.
func filled(address string) bool { return strings.Contains(address, "${") }

// place is the address part of a reference.
func place(r delivery.Reference) string {
	if r.Channel != "" {
		return r.Channel
	}
	if r.ChatID != 0 {
		return fmt.Sprint(r.ChatID)
	}
	return r.SID
}

// compose makes the message from the newest content.
func (w *Worker) compose(f *config.File, j *job, v delivery.Verdict, c store.Content, parent store.Card, entries []card.Entry) error {
	if c.ID == uuid.Nil {
		return errors.New("its content is not there")
	}
	if j.Kind == delivery.Event {
		j.call.Payload = c.Body
		return nil
	}
	var snap card.Snapshot
	if err := json.Unmarshal(c.Body, &snap); err != nil {
		return fmt.Errorf("content %s: %w", c.ID, err)
	}
	o := card.Options{PublicURL: f.Server.PublicURL, Target: j.Target, Repeat: v.Repeat}
	switch j.Kind {
	case delivery.Card:
		// The content may be newer than the claim's row: what is sent counts, up to what the row wishes.
		j.attempt.Revision = max(v.Revision, min(c.Revision, j.Desired))
		j.call.Message = card.Card(snap, o)
	case delivery.Thread:
		j.call.Message = card.Replies(snap, entries, o)
		j.call.Broadcast = slices.ContainsFunc(entries, func(e card.Entry) bool { return card.Tells(e, j.Notifier) })
	case delivery.Page:
		j.call.Message = card.Page(snap, j.name, "", o)
		if !parent.Reference.IsZero() {
			j.link = &linkOf{notifier: parent.Notifier, reference: parent.Reference, snap: snap, name: j.name, options: o}
		}
	default:
		j.call.Message = card.Notice(snap, o)
	}
	// For those who take a JSON body instead: a person may be paged through a webhook or a log.
	j.call.Payload = card.Event(snap, "incident."+string(j.Kind), j.CreatedAt)
	return nil
}

// settle writes steps that need no call, and leaves the jobs. Rows that moved meanwhile are their new owner's.
func (w *Worker) settle(steps []delivery.Step, jobs map[uuid.UUID]*job) {
	if len(steps) == 0 {
		return
	}
	defer func() {
		for _, j := range jobs {
			w.leave(j)
		}
	}()
	batch := make([]*job, 0, len(jobs))
	for _, j := range jobs {
		batch = append(batch, j)
	}
	var done map[uuid.UUID]bool
	tries := 0
	if !w.patiently("settling", batch, func(ctx context.Context) (err error) {
		tries++
		done, err = w.o.Store.Settle(ctx, steps)
		return err
	}) {
		return
	}
	var cards []delivery.Step
	dead := false
	if tries == 1 {
		steps = w.settleAnew(batch, steps, done)
	}
	for _, s := range steps {
		if done[s.From().ID] {
			w.settled(s)
		} else { // an earlier try may have been written, and only its answer lost: what follows it does no harm
			done[s.From().ID] = true
		}
		dead = dead || s.To().Dead()
		if s.From().Kind == delivery.Card {
			cards = append(cards, s)
		}
	}
	if dead {
		w.o.Dead()
	}
	w.unpark(cards)
	w.unparkLate(steps, done)
}

// settleAnew decides again on rows that did not take their step, under their locks: what was noted there meanwhile may be no more than
// a greater wish, and in a flood there is always one. What must be judged anew is given back, due at once. It returns the steps that
// are written by now.
func (w *Worker) settleAnew(batch []*job, steps []delivery.Step, done map[uuid.UUID]bool) []delivery.Step {
	missed := map[uuid.UUID]delivery.Step{}
	var ids []uuid.UUID
	written := make([]delivery.Step, 0, len(steps))
	for _, s := range steps {
		if id := s.From().ID; done[id] {
			written = append(written, s)
		} else {
			missed[id] = s
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return written
	}
	var anew map[uuid.UUID]delivery.Step
	w.patiently("settling", batch, func(ctx context.Context) (err error) {
		anew, err = w.o.Store.SettleAnew(ctx, ids, func(d delivery.Delivery) (delivery.Step, bool) {
			s := missed[d.ID]
			if d.Token != s.From().Token || d.OpenAttempt != uuid.Nil {
				return delivery.Step{}, false // its new owner's
			}
			if on, ok := s.On(d); ok {
				return on, true
			}
			return d.GiveBack(0, ""), true
		})
		return err
	})
	for _, id := range ids {
		s, ok := anew[id]
		if !ok {
			w.o.Metrics.Fenced.Inc()
			continue
		}
		done[id] = true
		written = append(written, s)
	}
	return written
}

// unparkLate looks again at what was just parked: the card's first attempt may have been recorded while the row was
// still leased, and then nobody else brings it forward before its bound.
func (w *Worker) unparkLate(steps []delivery.Step, done map[uuid.UUID]bool) {
	var incidents, cards []uuid.UUID
	for _, s := range steps {
		if d := s.From(); done[d.ID] && s.Change().Reason == "waiting_for_card" {
			incidents, cards = append(incidents, d.IncidentID), append(cards, d.CardID)
		}
	}
	if len(cards) == 0 {
		return
	}
	ctx, cancel := w.write()
	defer cancel()
	if free, err := w.o.Store.Unpark(ctx, incidents, cards); err != nil {
		w.o.Log.Warn("what was parked could not be looked at again, its bound does it", zap.Error(err))
	} else if len(free) > 0 {
		w.poke()
	}
}

// giveBack returns jobs without an attempt, due after delay. It looks at them under their locks: what moved is not theirs any more.
func (w *Worker) giveBack(batch []*job, delay time.Duration, reason string) {
	defer func() {
		for _, j := range batch {
			w.leave(j)
		}
	}()
	ids, tokens := make([]uuid.UUID, len(batch)), map[uuid.UUID]uuid.UUID{}
	for i, j := range batch {
		ids[i], tokens[j.ID] = j.ID, j.Token
	}
	w.patiently("giving back", batch, func(ctx context.Context) error {
		_, err := w.o.Store.SettleAnew(ctx, ids, func(d delivery.Delivery) (delivery.Step, bool) {
			return d.GiveBack(delay, reason), d.Token == tokens[d.ID] && d.OpenAttempt == uuid.Nil
		})
		return err
	})
}

// patiently tries a write for jobs without an attempt until it stands: until then they wait for the end of their leases,
// which is far. It gives up where the database will never take it, where the last lease is over, and at a stop's end; then
// the leases run out by themselves, without doubt.
func (w *Worker) patiently(doing string, batch []*job, write func(context.Context) error) bool {
	for try := 0; ; try++ {
		ctx, cancel := w.write()
		err := write(ctx)
		cancel()
		if err == nil {
			return true
		}
		over := !slices.ContainsFunc(batch, func(j *job) bool { return time.Since(j.asked) < j.lease })
		if over || store.Refused(err) || w.calls.Err() != nil {
			w.o.Log.Warn(doing+" failed, the leases run out", zap.Error(err), zap.Int("deliveries", len(batch)))
			return false
		}
		if try == 0 {
			w.o.Log.Warn(doing+" failed, trying again", zap.Error(err), zap.Int("deliveries", len(batch)))
		}
		w.rest(backoff(try))
	}
}
