package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/route"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// toldAlerts is what listeners are told of accepted alerts, whether or not a route takes them and anything of them is new.
func toldAlerts(source string, rows []store.Alert) []store.Event {
	out := make([]store.Event, len(rows))
	for i, a := range rows {
		labels := a.Labels
		if labels == nil {
			labels = map[string]string{}
		}
		out[i] = store.Event{Type: api.EventAlert, Topic: a.Topic, Body: api.LiveEvent{Alert: &api.LiveAlert{
			ID: a.ID.String(), IncidentID: a.IncidentID.String(), Source: source, Status: a.Status, Title: a.Title, Criticality: a.Criticality,
			Labels: labels, StartsAt: a.StartsAt.UTC(),
		}}}
	}
	return out
}

// tell tells the listeners what this change did to the incident.
func (c *change) tell() {
	one := func(typ string) {
		i := c.inc
		c.tx.Tell(store.Event{Type: typ, Topic: i.Topic, Body: api.LiveEvent{Incident: &api.Incident{
			ID: i.ID.String(), Key: i.Key, Source: i.Source, Topic: i.Topic, Title: i.Title, State: string(i.State), Criticality: i.Criticality,
			Count: i.Count, Firing: i.Firing, Resolved: i.Resolved, OpenedAt: i.OpenedAt.UTC(), AcknowledgedAt: inUTC(i.AcknowledgedAt),
			AcknowledgedBy: i.AcknowledgedBy, ResolvedAt: inUTC(i.ResolvedAt), ResolvedBy: i.ResolvedBy, SnoozedUntil: inUTC(i.SnoozedUntil),
		}}})
	}
	if c.created {
		one(api.EventOpened)
	}
	for _, what := range c.told {
		switch what {
		case plan.Opened: // again: its snooze is over, or it was escalated
			one(api.EventOpened)
		case plan.Acknowledged:
			one(api.EventAcknowledged)
		case plan.Resolved:
			one(api.EventResolved)
		}
	}
}

func inUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// liveDelivery is a dead delivery as listeners and webhooks are told of it.
func liveDelivery(d store.DeadDelivery) *api.LiveDelivery {
	v := d.Delivery
	out := &api.LiveDelivery{ID: v.ID.String(), Kind: string(v.Kind), Notifier: v.Notifier, Target: v.Target, State: string(v.State), Reason: v.Reason, Sentence: d.Sentence}
	if v.IncidentID != uuid.Nil {
		out.IncidentID = v.IncidentID.String()
	}
	return out
}

// TellDead tells the listeners, and the webhooks that ask for it, of dead deliveries, in the transaction that announces them.
//
// What a webhook does not hear of is its own death, and that of a delivery that told of another one: it would go on for ever.
func (i *Intake) TellDead(ctx context.Context, tx *store.Tx, dead ...store.DeadDelivery) error {
	f := i.file()
	for _, d := range dead {
		v := d.Delivery
		live := liveDelivery(d)
		topic := d.IncidentTopic
		if topic == "" {
			topic = "delivery." + string(v.State) + "." + route.Word(v.Notifier)
		}
		tx.Tell(store.Event{Type: api.EventDead, Topic: topic, Body: api.LiveEvent{Delivery: live}})
		if v.IncidentID == uuid.Nil && v.Kind == delivery.Event {
			continue
		}
		if err := post(ctx, tx, f, config.HearsDelivery, v.Notifier, outgoing{Type: api.EventDead, Data: outgoingData{Delivery: live}}); err != nil {
			return err
		}
	}
	return nil
}

// TellOnCall tells the listeners, and the webhooks that ask for it, who is on call from now on.
func (i *Intake) TellOnCall(ctx context.Context, tx *store.Tx, o api.LiveOnCall) error {
	tx.Tell(store.Event{Type: api.EventOnCall, Topic: "oncall." + route.Word(o.Schedule), Body: api.LiveEvent{OnCall: &o}})
	return post(ctx, tx, i.file(), config.HearsOnCall, "", outgoing{Type: api.EventOnCall, Data: outgoingData{OnCall: &o}})
}

// outgoing is the body of an event that is not about an incident, as it goes out to webhooks.
type outgoing struct {
	Type      string       `json:"type"`
	Timestamp time.Time    `json:"timestamp"`
	Data      outgoingData `json:"data"`
}

type outgoingData struct {
	Delivery *api.LiveDelivery `json:"delivery,omitempty"`
	OnCall   *api.LiveOnCall   `json:"oncall,omitempty"`
}

// post makes an event delivery for each webhook that asks for such events, but for one that it is about. It belongs to no incident: the
// webhook has not joined it.
func post(ctx context.Context, tx *store.Tx, f *config.File, sort, but string, o outgoing) error {
	var content uuid.UUID
	for _, name := range slices.Sorted(maps.Keys(f.Notifiers)) {
		n := f.Notifiers[name]
		if n.Type != "webhook" || n.Off || name == but || !n.Hears(sort) {
			continue
		}
		if content == uuid.Nil {
			o.Timestamp = tx.Now().UTC()
			body, err := json.Marshal(o)
			if err != nil {
				return fmt.Errorf("write an event: %w", err)
			}
			content = store.NewID()
			if err := tx.PutContent(ctx, store.Content{ID: content, Revision: 1, Body: body}); err != nil {
				return fmt.Errorf("write the content of an event: %w", err)
			}
		}
		if err := tx.AddDeliveries(ctx, store.NewDelivery{
			ID: store.NewID(), ContentID: content, Kind: delivery.Event, Notifier: name, Target: plan.TargetURL, Desired: 1,
			Lifetime: f.Kinds[delivery.Event].Lifetime,
		}); err != nil {
			return err
		}
	}
	return nil
}
