package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

const (
	scanMargin = time.Minute   // the ts of a message is Slack's clock, the start of an attempt is ours
	scanPage   = 200           // messages a page. Slack gives fewer where it likes, and apps that are sold get 15
	scanMost   = 50 * scanPage // messages of one scan
)

// Scan looks through what was posted for messages of this bot that carry a mark. Only a whole look-up proves that something
// is not there.
func (p *Provider) Scan(ctx context.Context, s provider.Search) provider.Scan {
	scan := provider.Scan{Found: map[string]delivery.Reference{}}
	if p.token == "" {
		scan.Blind, scan.Code = true, "no_token"
		scan.Sentence = "a webhook cannot read what it posted: look into the channel, and use a bot token to have it looked up"
		return scan
	}
	me, res, ok := p.whoAmI(ctx)
	if !ok && res.Code != unknownMethod && (res.Fault == delivery.FaultAccount || res.RetryAfter > 0) {
		return stopped(scan, res)
	}
	if s.Operation == delivery.OpReply {
		if s.Parent.Channel == "" || s.Parent.TS == "" {
			scan.Code, scan.Error = "no_reference", "it is not known in which thread to look"
			return scan
		}
		res, ok = p.readAll(ctx, &scan, me, "conversations.replies", s.Parent.Channel, s.Parent.TS, s.Oldest)
		if !ok && res.Code != "thread_not_found" {
			return stopped(scan, res)
		}
		scan.Complete = true
		return scan
	}
	channel := s.Address
	if isPerson(channel) {
		if channel, res, ok = p.openDirect(ctx, s.Address); !ok {
			return stopped(scan, res)
		}
	}
	if channel == "" {
		scan.Code, scan.Error = "no_address", "it is not known in which channel to look"
		return scan
	}
	if res, ok = p.readAll(ctx, &scan, me, "conversations.history", channel, "", s.Oldest); !ok {
		return stopped(scan, res)
	}
	scan.Complete = true
	return scan
}

// stopped is a scan that came to no end, with the reason why.
func stopped(scan provider.Scan, res delivery.Result) provider.Scan {
	scan.Code, scan.Error, scan.RetryAfter = res.Code, res.Error, res.RetryAfter
	if scan.Code == "" {
		scan.Code = res.Reason
	}
	// Only Slack's own word says that a person must act: what else refuses may be a filter's whim.
	if _, listed := classify(opRead, res.Code); listed && (res.Fault == delivery.FaultAccount || res.Fault == delivery.FaultDestination) {
		scan.Blind, scan.Sentence = true, res.Sentence
	}
	return scan
}

// readAll reads a history or a thread to its end and gathers the marked messages. False: it did not come to the end, and the
// result says why.
func (p *Provider) readAll(ctx context.Context, scan *provider.Scan, me identity, method, channel, thread string, oldest time.Time) (delivery.Result, bool) {
	form := url.Values{
		"channel": {channel}, "include_all_metadata": {"true"}, "inclusive": {"true"}, "limit": {strconv.Itoa(scanPage)},
	}
	if thread != "" {
		form.Set("ts", thread)
	}
	if !oldest.IsZero() {
		form.Set("oldest", stamp(oldest.Add(-scanMargin)))
	}
	limit := scanPage
	for left := scanMost; left > 0; left -= limit {
		rec := p.ask(ctx, method, form)
		if errors.Is(rec.ReadErr, wire.ErrTooLong) && limit > 1 {
			// Rich cards in escaped JSON: fewer of them at a time.
			limit = max(1, limit/4)
			left += limit // nothing was read
			form.Set("limit", strconv.Itoa(limit))
			continue
		}
		res, a, ok := judge(rec, opRead, channel)
		if !ok {
			if res.Code == missingScope && a.needed == "" {
				r, _ := classify(opRead, missingScope)
				res = rec.Clean(r.apply(res, opRead, missingScope, channel, historyScope(channel)))
			}
			return res, false
		}
		var list []json.RawMessage
		if raw := a.top["messages"]; !bytes.HasPrefix(raw, []byte("[")) || json.Unmarshal(raw, &list) != nil {
			return rec.Doubt("no_messages", "Slack answered ok without a list of messages"), false
		}
		for _, raw := range list {
			m, ok := readPosted(raw)
			if !ok {
				return rec.Doubt("unreadable_message", "Slack listed a message that cannot be read"), false
			}
			key := m.key()
			if key == "" || !me.wrote(m) {
				continue
			}
			// Of two with one key the first is the one that was meant; the second says that it is a repeat.
			if old, there := scan.Found[key]; !there || m.ts < old.TS {
				scan.Found[key] = delivery.Reference{Channel: channel, TS: m.ts}
			}
		}
		cursor := nextCursor(a)
		if cursor == "" {
			if string(a.top["has_more"]) == "true" {
				return rec.Doubt("no_cursor", "Slack has more messages and does not say how to get at them"), false
			}
			return res, true
		}
		form.Set("cursor", cursor)
	}
	return delivery.Result{Reason: "slack:too_many_messages", Error: fmt.Sprintf("more than %d messages were posted since", scanMost)}, false
}

func nextCursor(a answer) string {
	var meta map[string]json.RawMessage
	_ = json.Unmarshal(a.top["response_metadata"], &meta) // without it there is no next page
	return text(meta["next_cursor"])
}

// stamp is a time as Slack's ts.
func stamp(t time.Time) string {
	return fmt.Sprintf("%d.%06d", t.Unix(), t.Nanosecond()/1000)
}

// historyScope is the scope that reading a conversation needs, by the first letter of its id.
func historyScope(channel string) string {
	switch {
	case strings.HasPrefix(channel, "D"):
		return "im:history"
	case strings.HasPrefix(channel, "G"):
		return "groups:history"
	}
	return "channels:history (groups:history for a private channel)"
}

// posted is what is looked at of a message in a history.
type posted struct {
	ts, user, botID string
	metadata        map[string]json.RawMessage
	blockIDs        []string
}

func readPosted(raw json.RawMessage) (m posted, ok bool) {
	var top map[string]json.RawMessage
	if json.Unmarshal(raw, &top) != nil || text(top["ts"]) == "" {
		return m, false
	}
	m = posted{ts: text(top["ts"]), user: text(top["user"]), botID: text(top["bot_id"])}
	_ = json.Unmarshal(top["metadata"], &m.metadata) // what is no object carries no mark
	m.addBlocks(top["blocks"])
	var attachments []map[string]json.RawMessage
	_ = json.Unmarshal(top["attachments"], &attachments)
	for _, a := range attachments {
		m.addBlocks(a["blocks"])
	}
	return m, true
}

func (m *posted) addBlocks(raw json.RawMessage) {
	var blocks []map[string]json.RawMessage
	_ = json.Unmarshal(raw, &blocks)
	for _, b := range blocks {
		m.blockIDs = append(m.blockIDs, text(b["block_id"]))
	}
}

// key is the effect key by the metadata, else by a block's mark; empty: it is none of tocsin's.
func (m posted) key() string {
	if key := m.metadataKey(); key != "" {
		return key
	}
	return m.blockKey()
}

func (m posted) metadataKey() string {
	var payload map[string]json.RawMessage
	if text(m.metadata["event_type"]) != MetadataType || json.Unmarshal(m.metadata["event_payload"], &payload) != nil {
		return ""
	}
	return text(payload[MetadataKey])
}

func (m posted) blockKey() string {
	for _, id := range m.blockIDs {
		if key, ok := strings.CutPrefix(id, MarkPrefix); ok && key != "" {
			return key
		}
	}
	return ""
}

// wrote says that a message is this bot's own. Metadata is open to every app of the workspace, and anyone could copy it. Where
// Slack says neither who we are nor who wrote it, the mark is enough: who could copy it has seen the original, which is there
// too and came first.
func (me identity) wrote(m posted) bool {
	if me.botID == "" && me.userID == "" || m.botID == "" && m.user == "" {
		return true
	}
	return me.botID != "" && m.botID == me.botID || me.userID != "" && m.user == me.userID
}
