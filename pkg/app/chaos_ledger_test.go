package app

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// chaosCall is one request that a chat received, with the delivery that it was for.
type chaosCall struct {
	chattest.Request
	delivery  string
	operation string
	// lane is what the request and its attempt have in common: the effect key where the chat sees it, else delivery and
	// operation.
	lane string
}

// chaosLane is the lane of an attempt.
func chaosLane(d chaosDelivery, a chaosAttempt) string {
	if a.Operation != "edit" && d.slack() {
		return a.Key
	}
	return d.ID + " " + a.Operation
}

// slackCalls reads the workspace's ledger. Posts carry their effect key; an update names the message that it changes.
func slackCalls(s *slacktest.Server, blame func(string, ...any)) []chaosCall {
	var out []chaosCall
	made := map[string]string{} // object -> delivery
	for _, r := range s.Ledger() {
		c := chaosCall{Request: r}
		switch r.Method {
		case "chat.postMessage":
			c.delivery, _, _ = strings.Cut(r.Key, ":")
			c.operation, c.lane = "create", r.Key
			if r.Params["thread_ts"] != "" {
				c.operation = "reply"
			}
			if r.Effect == chattest.Created {
				made[r.Object] = c.delivery
			}
		case "chat.update":
			c.operation = "edit"
			c.delivery = made[r.Channel+"/"+r.TS]
			c.lane = c.delivery + " edit"
		default:
			if r.Effect != chattest.None {
				blame("Slack: a request of an unexpected sort had an effect: %s %s", r.Method, r.Body)
			}
			continue
		}
		if c.delivery == "" {
			blame("Slack: a request tells nothing of a delivery: %s %s", r.Method, r.Body)
		}
		out = append(out, c)
	}
	return out
}

var incidentIn = regexp.MustCompile(`incident ([0-9a-f-]{36})`)

// telegramCalls reads the bot's ledger. Telegram knows no keys: a new message names its incident in the small print, a
// reply and an edit name the message that they belong to.
func telegramCalls(s *telegramtest.Server, f *chaosFacts, blame func(string, ...any)) []chaosCall {
	var out []chaosCall
	made := map[string]string{}
	threads := map[string]string{} // card -> thread
	for _, d := range f.deliveries {
		if d.Kind == "thread" {
			threads[d.CardID] = d.ID
		}
	}
	for _, r := range s.Ledger() {
		c := chaosCall{Request: r}
		switch {
		case r.Method == "sendMessage" && r.Params["reply_parameters"] != "":
			c.operation = "reply"
			var to struct {
				ID int `json:"message_id"`
			}
			_ = json.Unmarshal([]byte(r.Params["reply_parameters"]), &to) // 0 is no message: blamed below
			c.delivery = threads[made[fmt.Sprintf("%s/%d", r.Channel, to.ID)]]
		case r.Method == "sendMessage":
			c.operation = "create"
			kind, notifier := "page", "telegram-dm"
			if r.Channel == strconv.Itoa(ops) {
				kind, notifier = "card", "ops-telegram"
			}
			if m := incidentIn.FindStringSubmatch(r.Text); m != nil {
				if ds := f.of(m[1], kind, notifier); len(ds) == 1 {
					c.delivery = ds[0].ID
				}
			}
			if r.Effect == chattest.Created {
				made[r.Object] = c.delivery
			}
		case r.Method == "editMessageText":
			c.operation = "edit"
			c.delivery = made[r.Channel+"/"+r.TS]
		default:
			blame("Telegram: a request of an unexpected sort: %s %s", r.Method, r.Body)
			continue
		}
		c.lane = c.delivery + " " + c.operation
		if c.delivery == "" {
			blame("Telegram: a request tells nothing of a delivery: %s %s", r.Method, r.Body)
		}
		out = append(out, c)
	}
	return out
}

// unmatched says which of the times can't be given a start of its own that lies before it: nil when all can. Both are
// sorted by it.
func unmatched(starts, times []time.Time) *time.Time {
	slices.SortFunc(starts, time.Time.Compare)
	slices.SortFunc(times, time.Time.Compare)
	for i := range times {
		if i >= len(starts) || starts[i].After(times[i]) {
			return &times[i]
		}
	}
	return nil
}

// checkCalls compares the chats' ledgers with the attempts.
//
//   - No call without a row: each request has an attempt of its own that began before it and is not proven to have
//     written nothing.
//   - Failed is proof: each request with an effect has such an attempt that is not said to have failed.
//   - A duplicate is explained: however often an effect happened, all attempts but one that began before the last time
//     ended in doubt.
//
// It returns how many effects happened more than once.
func checkCalls(f *chaosFacts, calls []chaosCall, blame func(string, ...any)) (duplicates int) {
	lanes := map[string][]chaosCall{}
	for _, c := range calls {
		lanes[c.lane] = append(lanes[c.lane], c)
	}
	attempts := map[string][]chaosAttempt{}
	for id, d := range f.deliveries {
		for _, a := range f.history[id] {
			attempts[chaosLane(d, a)] = append(attempts[chaosLane(d, a)], a)
		}
	}
	for lane, cs := range lanes {
		explain := func() string { return f.explain(cs[0].delivery) + explainCalls(cs) }
		var able, effective, doubtful []time.Time
		keys := map[string]bool{}
		for _, a := range attempts[lane] {
			if a.Operation != cs[0].operation {
				continue
			}
			keys[a.Key] = true
			if a.may() {
				able = append(able, a.Started)
				if a.Outcome != "failed" && a.LateSaid != "failed" {
					effective = append(effective, a.Started)
				}
			}
			if a.Outcome == "unknown" || a.ClosedBy == "reconcile" {
				doubtful = append(doubtful, a.Started)
			}
		}
		var all, happened []time.Time
		for _, c := range cs {
			all = append(all, c.At)
			if c.Effect != chattest.None {
				happened = append(happened, c.At)
			}
		}
		if at := unmatched(able, all); at != nil {
			blame("a request at %s has no attempt (lane %s):\n%s", at.Format("15:04:05.000"), lane, explain())
		}
		if at := unmatched(effective, happened); at != nil {
			blame("a request at %s had an effect, and its attempt is said to have failed (lane %s):\n%s", at.Format("15:04:05.000"), lane, explain())
		}
		if cs[0].operation == "edit" {
			continue
		}
		if more := len(happened) - len(keys); more > 0 {
			duplicates += more
			if d := f.deliveries[cs[0].delivery]; d.Notifier == "ops-slack" {
				blame("a %s was made again although Slack can be asked for it (lane %s):\n%s", d.Kind, lane, explain())
			}
			// The last ones are the repeats; each had a doubt before it.
			if at := unmatched(doubtful, happened[len(happened)-more:]); at != nil {
				blame("a duplicate at %s has no attempt in doubt before it (lane %s):\n%s", at.Format("15:04:05.000"), lane, explain())
			}
		}
	}
	return duplicates
}

func explainCalls(cs []chaosCall) string {
	var b strings.Builder
	for _, c := range cs {
		fmt.Fprintf(&b, "\n    request %d at %s: %s %s fault %q effect %q object %s status %d", c.Sequence, c.At.Format("15:04:05.000"), c.operation, c.Method, c.Fault, c.Effect, c.Object, c.Status)
	}
	return b.String()
}

// checkSent checks that whatever is said to be sent names an object that this very effect made in the chat.
func checkSent(f *chaosFacts, calls []chaosCall, blame func(string, ...any)) {
	made := map[string]chaosCall{}
	for _, c := range calls {
		if c.Effect == chattest.Created {
			made[c.Object] = c
		}
	}
	check := func(what string, d chaosDelivery, lane string, ref delivery.Reference) {
		if c, ok := made[chaosObject(ref)]; !ok || c.delivery != d.ID || lane != "" && c.lane != lane {
			blame("%s names %q, which its effect did not make:\n%s", what, chaosObject(ref), f.explain(d.ID))
		}
	}
	for id, d := range f.deliveries {
		for _, a := range f.history[id] {
			if a.Operation == "edit" {
				continue
			}
			if a.Outcome == "sent" {
				check("a sent attempt", d, chaosLane(d, a), a.Reference)
			}
			if a.LateSaid == "sent" {
				check("late evidence", d, chaosLane(d, a), a.LateReference)
			}
		}
		if d.Kind != "thread" && d.State == "sent" {
			check("a sent delivery", d, "", d.Reference)
		}
	}
}

func chaosObject(r delivery.Reference) string {
	if r.ChatID != 0 {
		return fmt.Sprintf("%d/%d", r.ChatID, r.MessageID)
	}
	return r.Channel + "/" + r.TS
}
