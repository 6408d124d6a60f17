package slack

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// live posts a test message, finds it again, looks at its marks, edits it and deletes it. It is the one way to see whether
// this workspace keeps metadata: what Slack documents of that is not of one mind.
func (p *Provider) live(ctx context.Context, f *findings, channel string, began time.Time) {
	const post, find, marks, edit, remove = "live test: post", "live test: find", "live test: marks", "live test: edit", "live test: delete"
	call := provider.Call{
		Operation: delivery.OpCreate, Address: channel, Key: "doctor-" + uuid.NewString(),
		Message: message.Message{Title: "A test of tocsin", Text: "This message is deleted at once."},
	}
	res := p.Do(ctx, call)
	if res.Outcome == delivery.OutcomeFailed {
		f.add(provider.Bad, post, orElse(res.Sentence, "examine it again later"), "%s", reasonOf(res))
		return
	}
	scan := p.Scan(ctx, provider.Search{Operation: delivery.OpCreate, Address: channel, Oldest: began})
	found, there := scan.Found[call.Key]
	ref := res.Reference
	switch {
	case res.Outcome == delivery.OutcomeSent:
		f.ok(post, "done")
	case there:
		ref = found
		f.add(provider.Warn, post, "look at the network between this machine and Slack", "its answer was lost, and it was found again: %s", reasonOf(res))
	default:
		f.add(provider.Bad, post, "look into the channel and delete the test message if it is there; then examine it again", "its answer was lost: %s", reasonOf(res))
		return
	}
	// Whatever comes of the rest, the message is taken away again.
	defer func() {
		rec := p.ask(context.WithoutCancel(ctx), "chat.delete", url.Values{"channel": {ref.Channel}, "ts": {ref.TS}})
		res, _, ok := judge(rec, opDelete, channel)
		if ok || res.Outcome == delivery.OutcomeSent {
			f.ok(remove, "done")
			return
		}
		f.add(provider.Warn, remove, "delete the test message by hand", "%s", reasonOf(res))
	}()
	switch {
	case there && found == ref:
		f.ok(find, "done")
	case scan.Blind:
		f.add(provider.Warn, find, scan.Sentence, "it cannot be looked up: %s", scan.Code)
	case !scan.Complete:
		f.add(provider.Warn, find, "examine it again later", "the look-up came to no end: %s", orElse(scan.Error, scan.Code))
	default:
		f.add(provider.Warn, find, "check that this machine's clock is right; without look-ups a message in doubt is repeated", "it was not found again")
	}
	if there {
		p.marks(ctx, f, marks, ref, call.Key)
	}
	call.Operation, call.Reference, call.Message.Text = delivery.OpEdit, ref, "It was edited, and is deleted at once."
	if res := p.Do(ctx, call); res.Outcome == delivery.OutcomeSent {
		f.ok(edit, "done")
	} else {
		f.add(provider.Bad, edit, orElse(res.Sentence, "examine it again later"), "cards cannot be changed: %s", reasonOf(res))
	}
}

// marks looks which of its two marks a message has kept.
func (p *Provider) marks(ctx context.Context, f *findings, check string, ref delivery.Reference, key string) {
	rec := p.ask(ctx, "conversations.history", url.Values{
		"channel": {ref.Channel}, "oldest": {ref.TS}, "latest": {ref.TS}, "inclusive": {"true"}, "limit": {"1"}, "include_all_metadata": {"true"},
	})
	res, a, ok := judge(rec, opRead, ref.Channel)
	if !ok {
		f.add(provider.Warn, check, orElse(res.Sentence, "examine it again later"), "they cannot be looked at: %s", reasonOf(res))
		return
	}
	var list []json.RawMessage
	_ = json.Unmarshal(a.top["messages"], &list) // none is found then
	for _, raw := range list {
		m, ok := readPosted(raw)
		if !ok || m.ts != ref.TS {
			continue
		}
		switch byMetadata, byBlock := m.metadataKey() == key, m.blockKey() == key; {
		case byMetadata && byBlock:
			f.ok(check, "metadata and block id came back as they were sent")
		case byMetadata:
			f.ok(check, "metadata came back as it was sent; the block id did not")
		case byBlock:
			f.add(provider.Warn, check, "use the bot token of an app, not a person's", "the metadata did not come back; messages are found by their block id alone")
		default:
			f.add(provider.Warn, check, "use the bot token of an app, not a person's", "neither metadata nor block id came back: a message in doubt cannot be looked up")
		}
		return
	}
	f.add(provider.Warn, check, "examine it again later", "the message was not in the history any more")
}
