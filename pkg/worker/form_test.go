package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// A chat that has another id by now is called there at once, and from then on, by all replicas. It costs no try.
func TestMovedChat(t *testing.T) {
	t.Parallel()
	chat := channel("chat")
	chat.Type, chat.Channel, chat.ChatID = "telegram", "", "-100"
	s := newSite(t, chat)
	d := s.desk("chat").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		switch {
		case c.Address == "-100":
			return delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultMoved, Reason: "destination:moved", MovedTo: "-200"}
		case c.Operation == delivery.OpEdit:
			return took(n, c)
		}
		return delivery.Result{Outcome: delivery.OutcomeSent, Evidence: delivery.Answered, Reference: delivery.Reference{ChatID: -200, MessageID: n}}
	})
	id := s.add(s.incident("a"), aCard("chat"))[0]
	first := s.start("first")
	s.waitFor(id, delivery.Sent)
	if calls := d.all(); len(calls) != 2 || calls[0].Address != "-100" || calls[1].Address != "-200" || calls[0].Key != calls[1].Key {
		t.Errorf("%+v", calls)
	}
	if got := s.outcomes(id); got != "[create failed by worker create sent by worker]" || s.row(id).Tries != 0 {
		t.Errorf("%s, %+v", got, s.row(id))
	}
	first.stop()
	other := s.start("second")
	s.until("what it knows", func() bool { return other.line.executed("MovedChats") > 0 })
	s.waitFor(s.add(s.incident("b"), aCard("chat"))[0], delivery.Sent)
	if calls := d.all(); len(calls) != 3 || calls[2].Address != "-200" {
		t.Errorf("%+v", calls)
	}
}

// What a provider refuses is left out at once, step by step, which costs no try; each attempt says what it left out. When
// nothing is left to leave out, the delivery is refused.
func TestFormsReachTheProvider(t *testing.T) {
	t.Parallel()
	refuse := func(part delivery.Part) delivery.Result {
		return delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultPayload, Reason: "payload:invalid", Refused: part}
	}
	for name, c := range map[string]struct {
		answers []delivery.Result
		forms   []string
		state   delivery.State
	}{
		"metadata, then buttons":   {[]delivery.Result{refuse(delivery.PartMetadata), refuse(delivery.PartButtons)}, []string{"", "no_metadata", "no_metadata no_buttons"}, delivery.Sent},
		"the whole":                {[]delivery.Result{refuse("")}, []string{"", "plain"}, delivery.Sent},
		"all of it, one by one":    {[]delivery.Result{refuse(delivery.PartButtons), refuse(""), refuse(delivery.PartMetadata), refuse("")}, []string{"", "no_buttons", "no_buttons plain", "no_metadata no_buttons plain"}, delivery.Rejected},
		"the same part once more":  {[]delivery.Result{refuse(delivery.PartMetadata), refuse(delivery.PartMetadata)}, []string{"", "no_metadata", "no_metadata plain"}, delivery.Sent},
		"refused, then in trouble": {[]delivery.Result{refuse(delivery.PartMetadata), refused}, []string{"", "no_metadata", "no_metadata"}, delivery.Sent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, channel("ops"))
			d := s.desk("ops").says(func(_ context.Context, n int, call provider.Call) delivery.Result {
				if n <= len(c.answers) {
					return c.answers[n-1]
				}
				return took(n, call)
			})
			id := s.add(s.incident("a"), aCard("ops"))[0]
			s.start("first")
			s.waitFor(id, c.state)
			var got []string
			for _, call := range d.all() {
				got = append(got, call.Form.String())
			}
			rows := strings.Split(get[string](s, "select string_agg(form, ',' order by number) from attempt where delivery_id = $1", id), ",")
			if !slices.Equal(got, c.forms) || !slices.Equal(rows, c.forms) {
				t.Errorf("called as %q, recorded as %q, not %q", got, rows, c.forms)
			}
			if c.state == delivery.Sent && get[string](s, "select form from delivery where id = $1", id) != "" {
				t.Error("the next message begins without what this one had to leave out")
			}
		})
	}
}

// A reply whose parent takes none is a message of its own.
func TestReplyWithoutItsParent(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	d := s.desk("ops").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if c.Operation == delivery.OpReply && !c.Form.Root {
			return delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultGone, Reason: "slack:cannot_reply"}
		}
		return took(n, c)
	})
	i := s.incident("a")
	card := aCard("ops")
	ids := s.add(i, card, aThread(card))
	s.start("first")
	s.waitFor(ids[1], delivery.Sent)
	if calls := d.all(); len(calls) != 3 || calls[1].Form.Root || !calls[2].Form.Root || calls[2].Reference.IsZero() {
		t.Errorf("%+v", calls)
	}
	if got := s.outcomes(ids[1]); got != "[reply failed by worker reply sent by worker]" {
		t.Error(got)
	}
}
