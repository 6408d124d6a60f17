package app

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// The paces are far higher than the usual ones, and so are the limits that the chats enforce: the storm is over in seconds.
// They take a little more than the file lets go, as any provider's limit does.
const stormFile = `
users:
  - {id: ana, contacts: [{via: slack-dm, address: U0ANA}]}
  - {id: bo, contacts: [{via: slack-dm, address: U0BO}]}
  - {id: cho, contacts: [{via: slack-dm, address: U0CHO}]}
  - {id: dee, contacts: [{via: slack-dm, address: U0DEE}]}
escalations:
  ana: {steps: [{after: 0s, page: ["user:ana"]}]}
  bo: {steps: [{after: 0s, page: ["user:bo"]}]}
  cho: {steps: [{after: 0s, page: ["user:cho"]}]}
  dee: {steps: [{after: 0s, page: ["user:dee"]}]}
notifiers:
  slack-0: {type: slack, token: "${SLACK_TOKEN}", channel: C0000, api_url: SLACK_API, timeout: 10s, pace: {destination: 1/50ms}}
  slack-1: {type: slack, token: "${SLACK_TOKEN}", channel: C0001, api_url: SLACK_API, timeout: 10s, pace: {destination: 1/50ms}}
  slack-2: {type: slack, token: "${SLACK_TOKEN}", channel: C0002, api_url: SLACK_API, timeout: 10s, pace: {destination: 1/50ms}}
  telegram-3: {type: telegram, token: "${TELEGRAM_TOKEN}", chat_id: "-1000000000003", api_url: TELEGRAM_API, timeout: 10s, pace: {destination: 1/50ms, group: off, account: 50/s}}
  telegram-4: {type: telegram, token: "${TELEGRAM_TOKEN}", chat_id: "-1000000000004", api_url: TELEGRAM_API, timeout: 10s, pace: {destination: 1/50ms, group: off, account: 50/s}}
  slack-dm: {type: slack, token: "${SLACK_TOKEN}", api_url: SLACK_API, timeout: 10s}
routes:
  - {match: "alert.*.*.c0", notify: [slack-0]}
  - {match: "alert.*.*.c1", notify: [slack-1]}
  - {match: "alert.*.*.c2", notify: [slack-2]}
  - {match: "alert.*.*.c3", notify: [telegram-3]}
  - {match: "alert.*.*.c4", notify: [telegram-4]}
  - {match: "alert.*.*.ana", escalate: ana}
  - {match: "alert.*.*.bo", escalate: bo}
  - {match: "alert.*.*.cho", escalate: cho}
  - {match: "alert.*.*.dee", escalate: dee}
  - {match: "alert.*.*.both", notify: [slack-0], escalate: dee}
`

// pageBound is how long a page may take from its being accepted to the provider's being called, in the middle of a storm. The
// race detector makes all of it several times as slow.
const pageBound = time.Second

// Many cards at once to five channels, on three replicas, into chats that enforce their limits and say now and then
// that they are busy.
func TestStormOfCardsLeavesInOrderAndWithinTheLimits(t *testing.T) {
	t.Parallel()
	const channels = 5
	each := drillAmount(30, 100)
	d := newDrill(t, drillSetup{
		replicas: 3, file: stormFile,
		slack: slacktest.Options{Channels: []slacktest.Channel{{ID: "C0000", Name: "c0"}, {ID: "C0001", Name: "c1"}, {ID: "C0002", Name: "c2"}}},
		telegram: telegramtest.Options{Chats: []telegramtest.Chat{
			{ID: -1000000000003, Type: "supergroup", Title: "c3"}, {ID: -1000000000004, Type: "supergroup", Title: "c4"},
		}},
	})
	d.slack.SetPostLimit(24, time.Second)
	d.telegram.SetLimits(telegramtest.Limits{Chat: telegramtest.Limit{Most: 24, Per: time.Second}, Bot: telegramtest.Limit{Most: 60, Per: time.Second}})
	for _, c := range []string{"C0000", "C0001", "C0002"} {
		d.slack.MustFault(chattest.Fault{Kind: chattest.Limited, Method: "chat.postMessage", Channel: c, RetryAfter: "1", Probability: 0.03})
	}
	for _, c := range []string{"-1000000000003", "-1000000000004"} {
		d.telegram.MustFault(chattest.Fault{Kind: chattest.Limited, Method: "sendMessage", Channel: c, RetryAfter: "2", Count: 2})
	}

	if _, err := d.db.Exec(t.Context(), follow); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * channels { // each replica has worked once: its first connections and statements take their time
		d.fire(i/channels, fmt.Sprintf("c%d", i%channels), "warning", fmt.Sprintf("c%d storm %05d.", i%channels, 99_990+i/channels))
	}
	d.fire(0, "cho", "critical", "before the storm")
	d.until("the replicas are warm", 0, d.settled())

	titles := make([][]string, channels)
	var sources sync.WaitGroup
	for c := range channels {
		for i := range each {
			titles[c] = append(titles[c], fmt.Sprintf("c%d storm %05d.", c, i))
		}
		sources.Go(func() { // of one channel one after the other: there is an order then
			for i, title := range titles[c] {
				job := fmt.Sprintf("c%d", c)
				if _, err := d.clients[(c+i)%3].SendAlert(t.Context(), api.Alert{Kind: "drill", Criticality: "warning", Job: job, Key: title, Title: title}, ""); err != nil {
					t.Errorf("%q: %v", title, err)
				}
			}
		})
	}
	sent := func() int {
		return ask[int](d, "select count(*) from delivery where kind = 'card' and state = 'sent'")
	}
	people, pages := []string{"ana", "bo", "cho", "dee"}, 0
	for share := range 10 { // a page whenever another tenth is out
		d.until("the storm goes on", 0, func() bool { return sent() >= share*channels*each/10 })
		d.fire(share, people[share%len(people)], "critical", fmt.Sprintf("page %d", share))
		pages++
		if share == 4 { // this one would carry a link to its card, which waits in the storm
			d.fire(share, "both", "critical", "page with a card")
		}
	}
	sources.Wait()
	d.until("all is out", 0, d.settled())

	checkStormShown(d, titles)
	checkRests(d)
	called := `select max(extract(epoch from h.started_at - b.created_at))::float8 from attempt_history h join delivery_board b using (delivery_id)
		where h.kind = 'page' and h.attempt_no = 1 and b.title like $1`
	// A machine that has no time for a page while nothing else goes on has none in a storm either.
	slowest, bound := ask[float64](d, called, "page _"), max(slowed(pageBound).Seconds(), 10*ask[float64](d, called, "before the storm"))
	if waited := ask[float64](d, called, "page with a card"); waited > (5*time.Second + slowed(pageBound)).Seconds() {
		t.Errorf("the page whose card waited was called after %.3f s", waited)
	} else {
		t.Logf("the page whose card waited was called after %.3f s", waited)
	}
	if got := ask[int](d, "select count(*) from delivery where kind = 'page' and state = 'sent'"); got != pages+2 || slowest > bound {
		t.Errorf("%d of %d pages are out, the slowest was called after %.3f s", got, pages, slowest)
	}
	limited := ask[int](d, "select count(*) from attempt_history where reason = 'rate_limited'")
	if limited == 0 {
		t.Error("no call was refused for being too many: the drill proves little")
	}
	t.Logf("%d calls, of which %d were refused as too many; the slowest of %d pages was called after %.3f s", ask[int](d, "select count(*) from attempt_history"), limited, pages, slowest)
}

// checkStormShown wants every card once, in its own channel, and in the order in which they were made.
func checkStormShown(d *drill, titles [][]string) {
	t := d.t
	t.Helper()
	type shown struct{ text, where string }
	var all []shown
	for c := range titles {
		if c < 3 {
			for _, m := range d.roots(fmt.Sprintf("C000%d", c)) {
				all = append(all, shown{m.Text, fmt.Sprint("c", c)})
			}
			continue
		}
		for _, m := range d.cards(-1000000000000 - int64(c)) {
			all = append(all, shown{m.Text, fmt.Sprint("c", c)})
		}
	}
	number := regexp.MustCompile(`(c\d) storm (\d+)\.`)
	order := map[string][]int{}
	count := map[string]int{}
	for _, m := range all {
		if strings.Contains(m.text, "page with a card") {
			continue
		}
		found := number.FindStringSubmatch(m.text)
		if found == nil || found[1] != m.where {
			t.Errorf("%s shows %q", m.where, m.text)
			continue
		}
		n, _ := strconv.Atoi(found[2])
		if count[found[0]]++; n < 99_990 {
			order[m.where] = append(order[m.where], n)
		}
	}
	overlap := 0
	for c, list := range titles {
		for _, title := range list {
			if count[title] != 1 {
				t.Errorf("%q is shown %d times", title, count[title])
			}
		}
		overlap += checkOrder(d, list, order[fmt.Sprint("c", c)])
	}
	t.Logf("%d pairs changed places, each of them together", overlap)
}

// checkOrder wants the titles to be shown in their order; got are their numbers as they are shown. A younger one may stand
// before an older one only where nobody could know better: it counts these.
func checkOrder(d *drill, titles []string, got []int) (swapped int) {
	d.t.Helper()
	for i := 1; i < len(got); i++ {
		for j := i - 1; j >= 0 && got[j] > got[i]; j-- { // got[j] is younger and stands before got[i]
			if !together(d, titles[got[i]], titles[got[j]]) {
				d.t.Errorf("%q stands before %q", titles[got[j]], titles[got[i]])
			}
			swapped++
		}
	}
	return swapped
}

// follow notes when a delivery first stood in its destination's queue, and when each was last claimed: the history of
// attempts does not tell who waited for a turn.
const follow = `
	create table joined (id uuid primary key, at timestamptz);
	create table claimed (id uuid primary key, at timestamptz);
	create function follow() returns trigger language plpgsql as $$
	begin
		if new.queue is not null and old.queue is null then
			insert into joined values (new.id, clock_timestamp()) on conflict do nothing;
		end if;
		if new.lease_token is not null and old.lease_token is null then
			insert into claimed values (new.id, clock_timestamp()) on conflict (id) do update set at = excluded.at;
		end if;
		return null;
	end $$;
	create trigger follow after update on delivery for each row when (new.kind = 'card' and new.attempts = 0) execute function follow()`

// together says that nobody who claimed the younger card could know that the older one waits: either that had not asked for
// its turn by then, or a call for it was under way.
func together(d *drill, older, younger string) bool {
	return ask[bool](d, `
		with o as (select b.delivery_id as id, coalesce(j.at, 'infinity') as joined from delivery_board b left join joined j on j.id = b.delivery_id where b.kind = 'card' and b.title = $1),
			y as (select b.delivery_id as id, c.at as claimed from delivery_board b join claimed c on c.id = b.delivery_id where b.kind = 'card' and b.title = $2)
		select o.joined >= y.claimed - interval '100 ms' or exists (
			select from attempt_history ho join attempt_history hy on hy.delivery_id = y.id where ho.delivery_id = o.id and ho.started_at <= hy.started_at and hy.started_at <= ho.finished_at)
		from o, y`, older, younger)
}

// checkRests wants no call to begin while its destination had asked for rest. A call that had begun before the refusal was
// known could not know: the chats count it, and the history excuses it. The rest counts from the answer: the result is written later.
func checkRests(d *drill) {
	t := d.t
	t.Helper()
	broken := list[string](d, `select y.kind || ' to ' || y.address || ' by ' || y.worker || ', ' || (y.started_at - x.finished_at) || ' after ' || x.worker || ' was told: ' || x.answer
		from attempt_history x join attempt_history y on y.address = x.address and y.started_at > x.finished_at
		where x.reason = 'rate_limited' and y.started_at < x.started_at + x.duration_ms * interval '1 millisecond'
			+ coalesce(substring(x.answer from 'retry after (\d+)'), '1')::float8 * interval '1 second'`)
	for _, b := range broken {
		t.Errorf("a call did not wait: %s", b)
	}
	excused := func(address, key string, at time.Time) bool {
		return ask[bool](d, `select exists (select from attempt_history x join attempt_history y on y.address = x.address
			where x.reason = 'rate_limited' and x.address = $1 and y.started_at between x.started_at - interval '5 seconds' and x.finished_at and ($2 = '' or y.effect_key = $2)
			and x.finished_at between $3::timestamptz - interval '3 seconds' and $3::timestamptz + interval '3 seconds')`, address, key, at)
	}
	for _, v := range d.slack.Violations() {
		if !excused(v.Channel, v.Key, v.At) {
			t.Errorf("Slack counts %s", v)
		}
	}
	for _, v := range d.telegram.Violations() {
		if !excused(strconv.FormatInt(v.Chat, 10), "", v.At) {
			t.Errorf("Telegram counts %+v", v)
		}
	}
	t.Logf("calls under way when a refusal came: %d to Slack, %d to Telegram", len(d.slack.Violations()), len(d.telegram.Violations()))
}

const waitFile = `
notifiers:
  busy: {type: slack, token: "${SLACK_TOKEN}", channel: C0OPS, api_url: SLACK_API, timeout: 10s, pace: {destination: 1/100ms}}
  other: {type: slack, token: "${SLACK_TOKEN}", channel: C0DB, api_url: SLACK_API, timeout: 10s, pace: {destination: 1/100ms}}
routes:
  - {match: "alert.*.*.busy", notify: [busy]}
  - {match: "alert.*.*.other", notify: [other]}
`

// Thirty alerts to one channel, which says after twenty that nothing may come for 26 seconds: all are shown once and in
// order, nothing is called there before, on any replica, and the other channel does not wait.
func TestChannelThatIsToldToWaitGetsAllInOrder(t *testing.T) {
	t.Parallel()
	const rest = 26 * time.Second
	d := newDrill(t, drillSetup{replicas: 3, file: waitFile})
	if _, err := d.db.Exec(t.Context(), follow); err != nil {
		t.Fatal(err)
	}
	posts := func(channel string) []chattest.Request {
		return d.slack.Ledger(chattest.ByMethod("chat.postMessage"), chattest.ByChannel(channel))
	}
	var titles []string
	for i := range 30 {
		titles = append(titles, fmt.Sprintf("busy %02d.", i))
		d.fire(i, "busy", "warning", titles[i])
	}
	if err := d.slack.WaitFor(within(t), func(s *slacktest.Server) bool { return len(d.roots("C0OPS")) >= 20 }); err != nil {
		t.Fatal(err)
	}
	d.slack.MustFault(chattest.Fault{Kind: chattest.Limited, Method: "chat.postMessage", Channel: "C0OPS", RetryAfter: "26", Count: 1})
	d.until("the channel rests", 0, func() bool {
		return ask[bool](d, "select exists (select from pause where destination = 'C0OPS' and reason = 'rate_limited') and not exists (select from delivery where lease_token is not null)")
	})
	i := slices.IndexFunc(posts("C0OPS"), func(r chattest.Request) bool { return r.Status == 429 })
	if i < 0 {
		t.Fatalf("no call was refused: %+v", posts("C0OPS"))
	}
	told := posts("C0OPS")[i].Finished

	// What else goes on meanwhile shows that the replicas are alive, and that nobody else waits.
	others := 0
	other := func() {
		t.Helper()
		title := fmt.Sprintf("other %d.", others)
		others++
		asked := time.Now()
		d.fire(others, "other", "warning", title)
		d.until("the other channel has its card", 0, func() bool {
			return slices.ContainsFunc(d.roots("C0DB"), func(m slacktest.Message) bool { return strings.Contains(m.Text, title) })
		})
		if took := time.Since(asked); took > slowed(time.Second) {
			t.Errorf("the other channel waited %s", took)
		}
	}
	before := len(posts("C0OPS"))
	other()
	for range 4 {
		d.pass(6 * time.Second)
		other()
	}
	if waits := ask[int](d, "select count(*) from delivery where notifier = 'busy' and kind = 'card' and next_at is not null and reason = 'rate_limited' and sentence <> ''"); waits == 0 {
		t.Errorf("nothing says that it waits, and for what\n%s", d.board())
	}
	d.until("all is out", 0, d.settled())

	for _, r := range posts("C0OPS")[before:] {
		if r.At.Before(told.Add(rest)) {
			t.Errorf("a call came %s after the channel had asked for %s", r.At.Sub(told), rest)
		}
	}
	var shown []int
	for _, m := range d.roots("C0OPS") {
		shown = append(shown, slices.Index(titles, regexp.MustCompile(`busy \d\d\.`).FindString(m.Text)))
	}
	if each := slices.Sorted(slices.Values(shown)); len(each) != len(titles) || each[0] != 0 || len(slices.Compact(each)) != len(titles) {
		t.Errorf("the channel shows %v", shown)
		return
	}
	checkOrder(d, titles, shown)
}
