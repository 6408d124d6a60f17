package app

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

const outageFile = `
notifiers:
  ops-slack: {type: slack, token: "${SLACK_TOKEN}", channel: C0OPS, api_url: SLACK_API, timeout: 1500ms, pace: off, concurrency: 8, retries: {delay: 1s, max_delay: 10s}}
  ops-telegram: {type: telegram, token: "${TELEGRAM_TOKEN}", chat_id: "-1001000000001", api_url: TELEGRAM_API, timeout: 1500ms, pace: off, concurrency: 8, retries: {delay: 1s, max_delay: 10s}}
routes:
  - {match: "alert.*.*.slack", notify: [ops-slack]}
  - {match: "alert.*.*.telegram", notify: [ops-telegram]}
`

// cardsFire sends n alerts of a job and returns their titles.
func (d *drill) cardsFire(n int, job string) []string {
	d.t.Helper()
	titles := make([]string, n)
	for i := range titles {
		titles[i] = fmt.Sprintf("%s host %05d is full", job, i)
		d.fire(i, job, "warning", titles[i])
	}
	return titles
}

// Slack stores three posts of ten and drops the connection, fails another three and lets one hang, for as long as it
// takes: every card is shown once, and so is every reply below one.
func TestSlackOutageShowsEveryCardOnce(t *testing.T) {
	t.Parallel()
	d := newDrill(t, drillSetup{replicas: 2, file: outageFile})
	outage(d.slack.Core, "chat.postMessage")
	titles := d.cardsFire(drillAmount(50, 1000), "slack")
	d.outlast()

	shown := map[string]int{}
	for _, m := range d.roots("C0OPS") {
		for _, title := range titles {
			if holds(m, title) {
				shown[title]++
			}
		}
	}
	for _, title := range titles {
		if shown[title] != 1 {
			t.Errorf("%q is shown %d times", title, shown[title])
		}
	}
	keys := map[string]int{}
	for _, m := range d.slack.Messages("C0OPS") {
		if keys[m.Key]++; m.Key == "" || keys[m.Key] > 1 {
			t.Errorf("the effect %q was made %d times: %s", m.Key, keys[m.Key], m.Text)
		}
	}
	if n := ask[int](d, "select count(*) from card_state c where c.state <> 'sent' or not exists (select from attempt_history h where h.delivery_id = c.delivery_id and h.outcome = 'sent')"); n != 0 {
		t.Errorf("%d cards were neither sent nor adopted\n%s", n, d.board())
	}
	adopted := ask[int](d, "select count(*) from attempt_history where closed_by = 'reconcile'")
	found, absent := d.metric("tocsin_reconciled_total", `result="found"`), d.metric("tocsin_reconciled_total", `result="absent"`)
	if adopted == 0 || found < float64(adopted) || absent == 0 {
		t.Errorf("%d adopted; look-ups found %v and did not find %v", adopted, found, absent)
	}
	t.Logf("%d messages, %d adopted, look-ups found %v, did not find %v", len(keys), adopted, found, absent)
}

// whyTwo is the handbook's query that explains two messages of one incident, attempt by attempt.
func whyTwo(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../deploy/handbook/incident-review.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "## Why are there two messages\n")
	_, rest, found := strings.Cut(rest, "```sql\n")
	query, _, end := strings.Cut(rest, "```")
	if !ok || !found || !end {
		t.Fatal("the handbook does not say why there are two messages")
	}
	return strings.ReplaceAll(strings.TrimRight(query, "; \n"), ":'incident'", "$1")
}

// doubts counts, for every card, the attempts that may have made a message: as many messages as these, and the one that was
// accepted, can be there at most. It is one query over the public view.
const doubts = `select h.incident_id::text || ' ' || count(*) filter (where h.outcome = 'unknown') || ' ' || count(*) filter (where h.outcome = 'sent')
	from attempt_history h where h.kind = 'card' and h.operation = 'create' group by h.incident_id`

// Telegram can't be asked what it holds, so an attempt in doubt is repeated: that makes a second message at times, never
// without a doubt before it; the repeat says so, and one query explains it.
func TestTelegramOutageRepeatsOnlyWhatIsInDoubt(t *testing.T) {
	t.Parallel()
	d := newDrill(t, drillSetup{replicas: 2, file: outageFile})
	outage(d.telegram.Core, "sendMessage")
	titles := d.cardsFire(drillAmount(50, 1000), "telegram")
	d.outlast()
	checkRepeats(d, titles, func(title string) (texts []string) {
		for _, m := range d.cards(ops) {
			if strings.Contains(m.Text, title) {
				texts = append(texts, m.Text)
			}
		}
		return texts
	})
}

// checkRepeats wants every title shown, and each repeat marked as one and explained by doubts before it. shown are the
// texts of a title's messages, oldest first.
func checkRepeats(d *drill, titles []string, shown func(title string) []string) {
	t := d.t
	t.Helper()
	unknown, sent := map[string]int{}, map[string]int{}
	for _, line := range list[string](d, doubts) {
		var id string
		var u, s int
		if _, err := fmt.Sscan(line, &id, &u, &s); err != nil {
			t.Fatal(err)
		}
		unknown[id], sent[id] = u, s
	}
	query := whyTwo(t)
	repeated := 0
	for _, title := range titles {
		texts := shown(title)
		id := ask[string](d, "select id::text from incident where title = $1", title)
		if len(texts) == 0 {
			t.Errorf("%q is not shown", title)
			continue
		}
		if sent[id] != 1 || len(texts) > 1+unknown[id] {
			t.Errorf("%q is shown %d times, with %d attempts in doubt and %d accepted", title, len(texts), unknown[id], sent[id])
		}
		for i, text := range texts {
			if says := strings.Contains(text, "repeat"); i > 0 && !says || i == 0 && says && unknown[id] == 0 {
				t.Errorf("message %d of %q: says that it is a repeat: %v\n%s", i+1, title, says, text)
			}
		}
		if len(texts) == 1 {
			continue
		}
		repeated++
		if told := list[string](d, "select x.kind || ' ' || x.why from ("+query+") x where x.kind = 'card'", id); len(told) < len(texts) {
			t.Errorf("%q is shown %d times, and the handbook's query explains %q", title, len(texts), told)
		}
	}
	if repeated == 0 {
		t.Error("nothing was repeated: the drill proves little")
	}
	t.Logf("%d of %d are shown more than once", repeated, len(titles))
}

// Without the scope that look-ups need, the policy decides: what is in doubt is sent again, and says so. A person is told
// once what to do about it.
func TestSlackOutageWithoutTheScopeToLookUp(t *testing.T) {
	t.Parallel()
	d := newDrill(t, drillSetup{file: outageFile})
	d.slack.SetScopes("chat:write", "channels:read", "im:write", "users:read", "users:read.email")
	outage(d.slack.Core, "chat.postMessage")
	titles := d.cardsFire(drillAmount(30, 500), "slack")
	d.outlast()
	checkRepeats(d, titles, func(title string) (texts []string) {
		for _, m := range d.roots("C0OPS") {
			if holds(m, title) {
				texts = append(texts, m.Text+string(m.Blocks)+string(m.Attachments))
			}
		}
		return texts
	})
	if n := strings.Count(d.log(), "can't be looked up through a notifier"); n != 1 {
		t.Errorf("that look-ups need a scope was said %d times", n)
	}
	if blind := d.metric("tocsin_reconciled_total", `result="blind"`); blind == 0 {
		t.Error("no look-up was blind")
	}
}

// Slack refuses the mark by which a message could be found again: it was not posted for sure, and is posted once without.
func TestSlackRefusesTheMark(t *testing.T) {
	t.Parallel()
	d := newDrill(t, drillSetup{file: outageFile})
	d.slack.MustFault(chattest.Fault{Kind: chattest.Code, Method: "chat.postMessage", Code: "invalid_metadata_format", Count: 1})
	titles := d.cardsFire(1, "slack")
	d.until("the card and its thread are out", 0, d.settled())
	m := d.roots("C0OPS")
	if len(m) != 1 || !holds(m[0], titles[0]) || m[0].Metadata != nil || m[0].Blocks == nil && m[0].Attachments == nil {
		t.Errorf("the channel has %+v", m)
	}
	got := list[string](d, "select outcome || ' ' || evidence || ' ' || form || ' ' || reason from attempt_history where kind = 'card' order by attempt_no")
	if want := []string{"failed answered  payload:invalid_metadata_format", "sent answered no_metadata "}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the attempts are %q, want %q", got, want)
	}
}

// The same, and the answer to the post without it is lost: the blocks carry a second mark, by which it is found.
func TestSlackTakesNoMarkAndDropsTheConnection(t *testing.T) {
	t.Parallel()
	d := newDrill(t, drillSetup{file: outageFile})
	d.slack.SetDropMetadata(true)
	d.slack.MustFault(chattest.Fault{Kind: chattest.Drop, Method: "chat.postMessage", Count: 1})
	titles := d.cardsFire(1, "slack")
	d.until("the card and its thread are out", time.Second, d.settled())
	if m := d.roots("C0OPS"); len(m) != 1 || !holds(m[0], titles[0]) {
		t.Errorf("the channel has %+v", m)
	}
	if got := ask[string](d, "select string_agg(outcome || ' ' || closed_by, ', ' order by attempt_no) from attempt_history where kind = 'card'"); got != "sent reconcile" {
		t.Errorf("the attempts are %q", got)
	}
}
