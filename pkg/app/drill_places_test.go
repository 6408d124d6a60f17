package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

const placesFile = `
notifiers:
  stranger: {type: slack, token: "${SLACK_TOKEN}", channel: C0STRANGE, api_url: SLACK_API, timeout: 5s}
  nowhere: {type: slack, token: "${SLACK_TOKEN}", channel: C0NOWHERE, api_url: SLACK_API, timeout: 5s}
  archive: {type: slack, token: "${SLACK_TOKEN}", channel: C0OLD, api_url: SLACK_API, timeout: 5s}
  ops-telegram: {type: telegram, token: "${TELEGRAM_TOKEN}", chat_id: "-1001000000001", api_url: TELEGRAM_API, timeout: 5s, pace: off}
routes:
  - {match: "alert.*.*.stranger", notify: [stranger]}
  - {match: "alert.*.*.nowhere", notify: [nowhere]}
  - {match: "alert.*.*.archive", notify: [archive]}
  - {match: "alert.*.*._tocsin", notify: [ops-telegram]}
`

// The bot is not in one channel, another does not exist, a third is archived. The first card to each is refused with what
// to do about it, the next ones wait, and people are told once a day.
func TestChannelsThatCannotBePostedTo(t *testing.T) {
	t.Parallel()
	d := newDrill(t, drillSetup{replicas: 2, file: placesFile, slack: slacktest.Options{Channels: []slacktest.Channel{
		{ID: "C0STRANGE", Name: "strange", NotMember: true}, {ID: "C0OLD", Name: "old", Archived: true},
	}}})
	jobs := map[string]string{
		"stranger": "rejected destination:not_in_channel invite @tocsin to C0STRANGE, then send again",
		"nowhere":  "rejected destination:channel_not_found C0NOWHERE does not exist or is closed to @tocsin: check the id, or invite @tocsin to it, then send again",
		"archive":  "rejected destination:is_archived C0OLD is archived: unarchive it or choose another channel in the file, then send again",
	}
	posts := func(channel string) int {
		return len(d.slack.Ledger(chattest.ByMethod("chat.postMessage"), chattest.ByChannel(channel)))
	}
	for job := range jobs {
		d.fire(0, job, "warning", "the first to "+job)
	}
	rejected := func() int {
		return ask[int](d, "select count(*) from delivery where kind = 'card' and state = 'rejected'")
	}
	d.until("the first cards are refused", 0, func() bool { return rejected() == len(jobs) })
	for job := range jobs {
		for i := range 3 {
			d.fire(i, job, "warning", fmt.Sprint("later to ", job, " ", i))
		}
	}
	d.until("the later cards wait", 0, func() bool {
		return ask[int](d, "select count(*) from delivery where kind = 'card' and notifier <> 'ops-telegram' and state = 'pending' and reason = 'paused' and lease_token is null and sentence <> ''") == 3*len(jobs)
	})
	for job, want := range jobs {
		if got := ask[string](d, "select state || ' ' || reason || ' ' || sentence from delivery_board where kind = 'card' and notifier = $1 and state <> 'pending'", job); got != want {
			t.Errorf("%s: %q, want %q", job, got, want)
		}
		if left := ask[float64](d, "select extract(epoch from until - clock_timestamp())::float8 from pause where notifier = $1", job); left < 800 || left > 900 {
			t.Errorf("%s rests for %.0f s more", job, left)
		}
	}
	for _, channel := range []string{"C0STRANGE", "C0NOWHERE", "C0OLD"} {
		if n := posts(channel); n != 1 {
			t.Errorf("%d calls to %s", n, channel)
		}
	}
	if v := d.metric("tocsin_pauses", `notifier="stranger"`); v == 0 {
		t.Error("tocsin_pauses does not show it")
	}

	// A quarter of an hour later the next one tries, and dies as the first did. That is no news.
	d.until("the next ones have tried", 20*time.Second, func() bool {
		return ask[int](d, "select min(n) from (select count(*) filter (where state = 'rejected') as n from delivery where kind = 'card' and notifier <> 'ops-telegram' group by notifier) x") >= 2
	})
	notices := func() (out []string) {
		for _, m := range d.cards(ops) {
			out = append(out, m.Text)
		}
		return out
	}
	d.until("all deaths are told", 0, func() bool {
		return ask[int](d, "select count(*) from delivery where kind = 'card' and state = 'rejected' and announced_at is null") == 0 &&
			ask[int](d, "select count(*) from delivery where notifier = 'ops-telegram' and next_at is not null") == 0
	})
	for job := range jobs {
		told := 0
		for _, text := range notices() {
			if strings.Contains(text, job) {
				told++
			}
		}
		if told != 1 {
			t.Errorf("people were told %d times of %s: %q", told, job, notices())
		}
	}

	// A person invites the bot, and sends one again: it goes out at once, and what waits does not wait for long.
	waiting := ask[int](d, "select count(*) from delivery where notifier = 'stranger' and kind = 'card' and state = 'pending'")
	d.slack.SetChannel(slacktest.Channel{ID: "C0STRANGE", Name: "strange"})
	again := ask[string](d, "select d.delivery_id::text from delivery_board d where kind = 'card' and notifier = 'stranger' and state = 'rejected' order by created_at limit 1")
	if _, err := d.clients[1].Decide(within(t), again, api.Decide{Action: api.ActionSendAgain, Reason: "invited"}); err != nil {
		t.Fatal(err)
	}
	d.until("the one that was sent again is out", 0, func() bool {
		return ask[string](d, "select state from delivery_board where delivery_id = $1::uuid", again) == "sent"
	})
	if r := d.roots("C0STRANGE"); len(r) != 1 || !holds(r[0], "the first to stranger") {
		t.Errorf("the channel shows %+v", r)
	}
	d.fire(0, "stranger", "warning", "after the invitation")
	d.until("what comes now goes out at once, and calls what waited", 0, func() bool {
		return ask[int](d, "select count(*) from delivery where notifier = 'stranger' and kind = 'card' and state = 'pending'") == 0
	})
	if n := len(d.roots("C0STRANGE")); n != waiting+2 {
		t.Errorf("the channel shows %d cards, and %d waited: %+v", n, waiting, d.roots("C0STRANGE"))
	}
}

const formsFile = `
notifiers:
  group: {type: telegram, token: "${TELEGRAM_TOKEN}", chat_id: "-5001", api_url: TELEGRAM_API, timeout: 5s, pace: off}
  ops: {type: telegram, token: "${TELEGRAM_TOKEN}", chat_id: "-1001000000001", api_url: TELEGRAM_API, timeout: 5s, pace: off}
routes:
  - {match: "alert.*.*.group", notify: [group]}
  - {match: "alert.*.*.ops", notify: [ops]}
`

// A group becomes a supergroup, which has another id: the card goes there at once, and the next ones without a detour.
func TestGroupBecomesASupergroup(t *testing.T) {
	t.Parallel()
	const old, now = -5001, -1005001005001
	d := newDrill(t, drillSetup{replicas: 2, file: formsFile, telegram: telegramtest.Options{Chats: []telegramtest.Chat{{ID: old, Type: "group", Title: "Ops"}}}})
	d.fire(0, "group", "warning", "before the move")
	d.until("the first card is out", 0, d.settled())
	d.telegram.Migrate(old, now)
	calls := func() int {
		return len(d.telegram.Ledger(chattest.ByMethod("sendMessage"), chattest.ByChannel(fmt.Sprint(old))))
	}
	before := calls()
	d.fire(1, "group", "warning", "at the move")
	d.until("the card is out", 0, d.settled("card"))
	if m := d.cards(now); len(m) != 1 || !strings.Contains(m[0].Text, "at the move") {
		t.Errorf("the supergroup shows %+v", m)
	}
	if n := calls() - before; n != 1 {
		t.Errorf("the old id was called %d times", n)
	}
	got := list[string](d, "select h.address || ' ' || h.outcome || ' ' || h.reason from attempt_history h join delivery_board b using (delivery_id) where b.title = 'at the move' and h.kind = 'card' order by attempt_no")
	if want := fmt.Sprintf("[%d failed destination:migrated %d sent ]", old, now); fmt.Sprint(got) != want {
		t.Errorf("the attempts are %v, want %s", got, want)
	}
	if got := ask[string](d, "select address || ' ' || moved_to from moved_chat"); got != fmt.Sprint(old, " ", now) {
		t.Errorf("stored is %s", got)
	}
	d.until("the threads are out", 0, d.settled())
	before = calls()
	for i := range 4 {
		d.fire(i, "group", "warning", fmt.Sprint("after the move ", i))
	}
	d.until("the next cards are out", 0, d.settled())
	// The replica that was not told may ask the old id once, within the second until it hears of it.
	if n := calls() - before; n > 1 || len(d.cards(now)) != 5 {
		t.Errorf("the old id was called %d times; the supergroup shows %+v", n, d.cards(now))
	}
}

// Telegram refuses a part of a message, all of its markup, or the message that it answers: what is refused is left out, the
// rest is shown once, and the history says what is missing.
func TestTelegramTakesLessThanTheWholeMessage(t *testing.T) {
	t.Parallel()
	d := newDrill(t, drillSetup{file: formsFile})
	history := func(title, kind string) string {
		return fmt.Sprintf("%q", list[string](d, "select coalesce(h.outcome, 'open') || ' ' || h.form from attempt_history h join delivery_board b using (delivery_id) where b.title = $1 and h.kind = $2 and h.operation <> 'edit' order by attempt_no", title, kind))
	}
	shown := func(title string) telegramtest.Message {
		t.Helper()
		var found []telegramtest.Message
		for _, m := range d.cards(ops) {
			if strings.Contains(m.Text, title) {
				found = append(found, m)
			}
		}
		if len(found) != 1 {
			t.Fatalf("%q is shown %d times: %+v", title, len(found), d.cards(ops))
		}
		return found[0]
	}
	for _, c := range []struct{ title, says, form string }{
		{"the button is refused", "Bad Request: BUTTON_DATA_INVALID", "no_buttons"},
		{"the markup is refused", "Bad Request: can't parse entities: Unsupported start tag", "plain"},
	} {
		d.telegram.MustFault(chattest.Fault{Kind: chattest.Code, Method: "sendMessage", Code: c.says, Count: 1})
		d.fire(0, "ops", "warning", c.title)
		d.until(c.title+" and it is out", 0, d.settled())
		m := shown(c.title)
		if len(m.Keyboard) != 0 || (c.form == "plain") != (len(m.Entities) == 0) {
			t.Errorf("%s: %+v", c.title, m)
		}
		if got, want := history(c.title, "card"), fmt.Sprintf(`["failed " "sent %s"]`, c.form); got != want {
			t.Errorf("%s: the attempts are %s, want %s", c.title, got, want)
		}
	}

	const title = "the parent has vanished"
	a := d.fire(0, "ops", "warning", title)
	d.until("the card and its thread are out", 0, d.settled())
	d.telegram.MustFault(chattest.Fault{Kind: chattest.Code, Method: "sendMessage", Code: "Bad Request: message to be replied not found", Count: 1})
	before := len(d.cards(ops))
	if _, err := d.clients[0].Acknowledge(within(t), a.IncidentID, api.IncidentAction{}); err != nil {
		t.Fatal(err)
	}
	d.until("the reply is out", 0, func() bool { return strings.Contains(history(title, "thread"), "root") && d.settled()() })
	if roots := d.cards(ops); len(roots) != before+1 || !strings.Contains(strings.ToLower(roots[len(roots)-1].Text), "acknowledged") {
		t.Errorf("the reply is not a message of its own: %+v", roots)
	}
	if got, want := history(title, "thread"), `["sent " "failed " "sent root"]`; got != want {
		t.Errorf("the attempts of the thread are %s, want %s", got, want)
	}
}
