package slacktest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/slack-go/slack"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

func client(s *slacktest.Server) *slack.Client {
	return slack.New(s.Options().Token, slack.OptionAPIURL(s.APIURL()))
}

// code is the error code that slack-go made of an answer.
func code(err error) string {
	var e slack.SlackErrorResponse
	if errors.As(err, &e) {
		return e.Err
	}
	if err != nil {
		return "other: " + err.Error()
	}
	return ""
}

func card(colour, title string) slack.MsgOption {
	return slack.MsgOptionAttachments(slack.Attachment{Color: colour, Blocks: slack.Blocks{BlockSet: []slack.Block{
		slack.NewHeaderBlock(slack.NewTextBlockObject("plain_text", title, true, false)),
		slack.NewActionBlock("", slack.NewButtonBlockElement("ack", "inc-1", slack.NewTextBlockObject("plain_text", "Acknowledge", true, false)).WithStyle(slack.StylePrimary)),
	}}})
}

func keyed(key string) slack.MsgOption {
	return slack.MsgOptionMetadata(slack.SlackMetadata{EventType: "tocsin", EventPayload: map[string]any{"effect_key": key}})
}

func TestCardLifeIsInLedgerAndWorkspace(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	api := client(s)

	who, err := api.AuthTest()
	if err != nil || who.UserID != "U0TOCSIN" || who.TeamID != "T0SIM" {
		t.Fatalf("auth.test: %+v, %v", who, err)
	}
	ch, ts, err := api.PostMessage("C0OPS", slack.MsgOptionText("disk full", false), card("#e01e5a", "🔴 disk full"), keyed("k1"))
	if err != nil || ch != "C0OPS" {
		t.Fatalf("post: %q, %v", ch, err)
	}
	_, reply, err := api.PostMessage("C0OPS", slack.MsgOptionText("acknowledged by Ana", false), slack.MsgOptionTS(ts), keyed("k2"))
	if err != nil || reply <= ts {
		t.Fatalf("reply: ts %q after %q, %v", reply, ts, err)
	}
	if _, _, _, err := api.UpdateMessage("C0OPS", ts, slack.MsgOptionText("disk full, taken", false), card("#ecb22e", "🟡 disk full")); err != nil {
		t.Fatal(err)
	}
	m, _ := s.Message(ts)
	if m.Text != "disk full, taken" || m.Colour() != "ecb22e" || len(m.Edits) != 1 || m.Key != "k1" {
		t.Errorf("after the update: %+v", m)
	}
	if r := s.Replies("C0OPS", ts); len(r) != 1 || r[0].TS != reply || r[0].Key != "k2" {
		t.Errorf("replies: %+v", r)
	}
	link, err := api.GetPermalink(&slack.PermalinkParameters{Channel: "C0OPS", Ts: ts})
	if want := s.URL() + "/archives/C0OPS/p" + strings.ReplaceAll(ts, ".", ""); err != nil || link != want {
		t.Errorf("permalink %q, want %q, %v", link, want, err)
	}

	posts := s.Ledger(chattest.ByMethod("chat.postMessage"), chattest.WithEffect())
	if len(posts) != 2 || posts[0].Key != "k1" || posts[0].Object != "C0OPS/"+ts || posts[1].Object != "C0OPS/"+reply {
		t.Errorf("ledger of posts: %+v", posts)
	}
	if u := s.Ledger(chattest.ByMethod("chat.update")); len(u) != 1 || u[0].Effect != chattest.Changed || u[0].Key != "k1" || !u[0].OK() {
		t.Errorf("ledger of updates: %+v", u)
	}
	for i, r := range s.Ledger() {
		if r.Sequence != i+1 || !r.Done || r.Status != 200 {
			t.Errorf("request %d: %+v", i, r)
		}
	}
}

func TestUpdateKeepsAndRemovesAsSlackDoes(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	api := client(s)
	section := slack.MsgOptionBlocks(slack.NewSectionBlock(slack.NewTextBlockObject("mrkdwn", "hello", false, false), nil, nil))
	_, ts, err := api.PostMessage("C0OPS", slack.MsgOptionText("hello", false), section, card("#36a64f", "x"), keyed("k"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := api.UpdateMessage("C0OPS", ts, slack.MsgOptionText("only text", false)); err != nil {
		t.Fatal(err)
	}
	if m, _ := s.Message(ts); m.Blocks != nil || m.Attachments == nil || m.Metadata == nil {
		t.Errorf("text without blocks must remove blocks and keep attachments and metadata: %+v", m)
	}
	for _, c := range []struct{ channel, ts, text, want string }{
		{"C0OPS", ts, strings.Repeat("x", 4001), "msg_too_long"},
		{"C0OPS", "1.000001", "x", "message_not_found"},
		{"C0DB", ts, "x", "message_not_found"},
		{"U0ANA", ts, "x", "channel_not_found"},
	} {
		if _, _, _, err := api.UpdateMessage(c.channel, c.ts, slack.MsgOptionText(c.text, false)); code(err) != c.want {
			t.Errorf("update %s %s: %v, want %s", c.channel, c.ts, err, c.want)
		}
	}
	human, err := s.Say("C0OPS", "U0ANA", "hi")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := api.UpdateMessage("C0OPS", human, slack.MsgOptionText("x", false)); code(err) != "cant_update_message" {
		t.Errorf("update of a person's message: %v", err)
	}
	if _, _, err := api.DeleteMessage("C0OPS", ts); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := api.UpdateMessage("C0OPS", ts, slack.MsgOptionText("x", false)); code(err) != "message_not_found" {
		t.Errorf("update of a deleted message: %v", err)
	}
	// The un-threaded trap: the parent is gone, the reply lands in the channel, and Slack says ok.
	_, lost, err := api.PostMessage("C0OPS", slack.MsgOptionText("reply", false), slack.MsgOptionTS(ts))
	if m, _ := s.Message(lost); err != nil || m.ThreadTS != "" {
		t.Errorf("reply to a deleted parent: %+v, %v", m, err)
	}
}

func TestDestinationsRefuseAsSlackDoes(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{
		Channels: []slacktest.Channel{{ID: "C1", Name: "in"}, {ID: "C2", Name: "out", NotMember: true}, {ID: "C3", Name: "secret", Private: true, NotMember: true}, {ID: "C4", Name: "old", Archived: true}},
		Users:    []slacktest.User{{ID: "U1", Name: "ana", Email: "ana@example.com"}, {ID: "U2", Name: "gone", Email: "gone@example.com", Deactivated: true}},
	})
	api := client(s)
	for channel, want := range map[string]string{"C1": "", "C2": "not_in_channel", "C3": "channel_not_found", "C4": "is_archived", "C9": "channel_not_found", "U1": "", "U2": "user_disabled", "U9": "user_not_found"} {
		if _, _, err := api.PostMessage(channel, slack.MsgOptionText("x", false)); code(err) != want {
			t.Errorf("post to %s: %v, want %q", channel, err, want)
		}
	}
	opened, _, already, err := api.OpenConversation(&slack.OpenConversationParameters{Users: []string{"U1"}})
	if err != nil || !already || opened.ID != "D1" || len(s.Messages("U1")) != 1 || len(s.Messages("D1")) != 1 {
		t.Errorf("direct message: %+v, already %v, %v", opened, already, err)
	}
	if u, err := api.GetUserByEmail("ANA@example.com"); err != nil || u.ID != "U1" {
		t.Errorf("lookup: %+v, %v", u, err)
	}
	if _, err := api.GetUserByEmail("gone@example.com"); code(err) != "users_not_found" {
		t.Errorf("lookup of a deactivated user: %v", err)
	}
	if _, _, _, err := api.JoinConversation("C2"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := api.PostMessage("C2", slack.MsgOptionText("x", false)); err != nil {
		t.Errorf("post after joining: %v", err)
	}
	if _, _, err := slack.New("xoxb-wrong", slack.OptionAPIURL(s.APIURL())).PostMessage("C1", slack.MsgOptionText("x", false)); code(err) != "invalid_auth" {
		t.Errorf("wrong token: %v", err)
	}
}

func TestHistoryReconciles(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	api := client(s)
	var stamps []string
	for i := range 7 {
		_, ts, err := api.PostMessage("C0OPS", slack.MsgOptionText(fmt.Sprint(i), false), keyed(fmt.Sprint("k", i)))
		if err != nil {
			t.Fatal(err)
		}
		stamps = append(stamps, ts)
	}
	_, reply, err := api.PostMessage("C0OPS", slack.MsgOptionText("r", false), slack.MsgOptionTS(stamps[0]), keyed("kr"))
	if err != nil {
		t.Fatal(err)
	}

	var keys []string
	for cursor, more := "", true; more; {
		h, err := api.GetConversationHistory(&slack.GetConversationHistoryParameters{ChannelID: "C0OPS", Oldest: stamps[1], Inclusive: true, Limit: 2, Cursor: cursor, IncludeAllMetadata: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range h.Messages {
			keys = append(keys, m.Metadata.EventPayload["effect_key"].(string))
		}
		cursor, more = h.ResponseMetaData.NextCursor, h.HasMore
	}
	if got := strings.Join(keys, " "); got != "k6 k5 k4 k3 k2 k1" {
		t.Errorf("history: %s", got)
	}
	h, err := api.GetConversationHistory(&slack.GetConversationHistoryParameters{ChannelID: "C0OPS", Limit: 1})
	if err != nil || h.Messages[0].Metadata.EventType != "tocsin" || h.Messages[0].Metadata.EventPayload != nil {
		t.Errorf("without include_all_metadata only the type comes back: %+v, %v", h, err)
	}
	thread, _, _, err := api.GetConversationReplies(&slack.GetConversationRepliesParameters{ChannelID: "C0OPS", Timestamp: stamps[0], IncludeAllMetadata: true})
	if err != nil || len(thread) != 2 || thread[0].Timestamp != stamps[0] || thread[1].Timestamp != reply || thread[1].ThreadTimestamp != stamps[0] {
		t.Errorf("thread: %+v, %v", thread, err)
	}
}
