package server_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// slackPress is the signed callback of a press, as Slack sends it.
func slackPress(secret, user, action, incident, actionTS string, at time.Time) (body string, header []string) {
	payload, _ := json.Marshal(map[string]any{
		"type": "block_actions", "user": map[string]any{"id": user, "username": "someone"}, "channel": map[string]any{"id": "C0OPS"},
		"message": map[string]any{"ts": "1.1"}, "response_url": "https://hooks.slack.example.com/" + user,
		"actions": []any{map[string]any{"type": "button", "action_id": action, "value": incident, "action_ts": actionTS}},
	})
	body = url.Values{"payload": {string(payload)}}.Encode()
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "v0:%s:%s", stamp, body)
	return body, []string{"X-Slack-Request-Timestamp", stamp, "X-Slack-Signature", "v0=" + hex.EncodeToString(mac.Sum(nil)), "Content-Type", "application/x-www-form-urlencoded"}
}

func telegramPress(update int, user int64, action, incident string) string {
	b, _ := json.Marshal(map[string]any{"update_id": update, "callback_query": map[string]any{
		"id": "query-" + strconv.Itoa(update), "from": map[string]any{"id": user, "first_name": "Some", "username": "one"},
		"message": map[string]any{"message_id": 7, "chat": map[string]any{"id": -100}}, "data": action + ":" + incident,
	}})
	return string(b)
}

func (w *world) heard() whispered {
	w.t.Helper()
	select {
	case h := <-w.whisper:
		return h
	case <-time.After(10 * time.Second):
		w.t.Fatal("no private answer came")
	}
	return whispered{}
}

func (w *world) open() string {
	w.t.Helper()
	return want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", disk).IncidentID
}

func (w *world) incident(id string) api.Incident {
	w.t.Helper()
	return want[api.Incident](w, 200, "eye", "GET", "/v1/incidents/"+id, "")
}

// count asks the database for a number.
func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	if err := conn.QueryRow(w.t.Context(), query, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func TestSlackPress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	body, header := slackPress(signing, "U0ANA", "ack", id, "5.1", time.Now())
	if status, _, b := w.call("", "POST", "/slack/interactions", body, header...); status != 200 {
		t.Fatalf("%d %s", status, b)
	}
	if h := w.heard(); h.to != "https://hooks.slack.example.com/U0ANA" || !strings.Contains(h.text, "You acknowledged it") {
		t.Errorf("told %+v", h)
	}
	if inc := w.incident(id); inc.State != "acknowledged" || inc.AcknowledgedBy != "Ana Torres" {
		t.Errorf("%+v", inc)
	}
	body, header = slackPress(signing, "U0BO", "ack", id, "5.2", time.Now())
	w.call("", "POST", "/slack/interactions", body, header...)
	if h := w.heard(); !strings.Contains(h.text, "Ana Torres acknowledged it already") {
		t.Errorf("the second is told %+v", h)
	}
}

// Two people press at once, and the chat redelivers both: one acknowledgement, one line in the audit trail.
func TestPressesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	var all sync.WaitGroup
	for i := range 8 {
		user := []string{"U0ANA", "U0BO"}[i%2]
		all.Go(func() {
			body, header := slackPress(signing, user, "ack", id, user, time.Now()) // the same press each time
			w.call("", "POST", "/slack/interactions", body, header...)
		})
	}
	all.Wait()
	first := 0
	for range 2 { // a redelivery was answered with the first
		if strings.Contains(w.heard().text, "You acknowledged it") {
			first++
		}
	}
	if n := w.count("select count(*) from audit where action = 'acknowledge'"); n != 1 || first != 1 {
		t.Errorf("%d lines in the audit trail, %d were told that they did it; want one each", n, first)
	}
	if n := w.count("select count(*) from timeline where type = 'acknowledged'"); n != 1 {
		t.Errorf("%d acknowledgements in the timeline", n)
	}
}

func TestForgedPressesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	now := time.Now()
	good, header := slackPress(signing, "U0ANA", "ack", id, "5.1", now)
	refuse := func(name, body string, header []string) {
		t.Helper()
		if status, _, b := w.call("", "POST", "/slack/interactions", body, header...); status != 401 {
			t.Errorf("%s: %d %s", name, status, b)
		}
	}
	body, wrong := slackPress("another secret", "U0ANA", "ack", id, "5.1", now)
	refuse("another secret", body, wrong)
	body, old := slackPress(signing, "U0ANA", "ack", id, "5.1", now.Add(-6*time.Minute))
	refuse("six minutes old", body, old)
	body, future := slackPress(signing, "U0ANA", "ack", id, "5.1", now.Add(6*time.Minute))
	refuse("six minutes ahead", body, future)
	refuse("a changed body", good+"&x=1", header)
	refuse("no signature", good, nil)
	if status, _, _ := w.call("", "POST", "/telegram/ops-telegram", telegramPress(1, 501, "ack", id)); status != 401 {
		t.Errorf("Telegram without the secret: %d", status)
	}
	if status, _, _ := w.call("", "POST", "/telegram/ops-telegram", telegramPress(1, 501, "ack", id), "X-Telegram-Bot-Api-Secret-Token", "guess"); status != 401 {
		t.Errorf("Telegram with another secret: %d", status)
	}
	if status, _, _ := w.call("", "POST", "/telegram/ops-slack", telegramPress(1, 501, "ack", id), "X-Telegram-Bot-Api-Secret-Token", ""); status != 404 {
		t.Errorf("Telegram on a Slack notifier: %d", status)
	}
	if inc := w.incident(id); inc.State != "open" {
		t.Errorf("a forged press was applied: %+v", inc)
	}
}

// What the database does not take is told to whoever pressed, where the chat does not send it again, and asked for again where it does.
func TestAPressThatIsNotStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	w.exec("create function no() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$")
	w.exec("create trigger no before insert on callback for each row execute function no()")
	body, header := slackPress(signing, "U0ANA", "ack", id, "5.1", time.Now())
	if status, _, b := w.call("", "POST", "/slack/interactions", body, header...); status != 200 {
		t.Errorf("Slack: %d %s", status, b)
	}
	if h := w.heard(); h.to != "https://hooks.slack.example.com/U0ANA" || !strings.Contains(h.text, "could not be recorded, nothing was changed") {
		t.Errorf("told %+v", h)
	}
	const secret = "X-Telegram-Bot-Api-Secret-Token"
	if status, _, b := w.call("", "POST", "/telegram/ops-telegram", telegramPress(1, 777, "ack", id), secret, hook); status != 503 {
		t.Errorf("Telegram: %d %s", status, b)
	}
	w.exec("drop trigger no on callback")
	if status, _, b := w.call("", "POST", "/telegram/ops-telegram", telegramPress(1, 777, "ack", id), secret, hook); status != 200 {
		t.Errorf("Telegram, sent again: %d %s", status, b)
	}
	if h := w.heard(); !strings.Contains(h.text, "does not know yet who you are") {
		t.Errorf("told %+v", h)
	}
	if inc := w.incident(id); inc.State != "open" {
		t.Errorf("%+v", inc)
	}
}

// D12: an account that nobody knows gets a private link, once; linking applies the press in the user's name.
func TestUnknownTelegramAccountIsLinked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	for range 2 { // Telegram redelivers
		if status, _, b := w.call("", "POST", "/telegram/ops-telegram", telegramPress(9, 777, "resolve", id), "X-Telegram-Bot-Api-Secret-Token", hook); status != 200 {
			t.Fatalf("%d %s", status, b)
		}
	}
	h := w.heard()
	_, rest, ok := strings.Cut(h.text, "https://tocsin.example.com/link/")
	if !ok || h.to != "query-9" {
		t.Fatalf("told %+v", h)
	}
	code, _, _ := strings.Cut(rest, " ")
	if n := w.count("select count(*) from link_code"); n != 1 {
		t.Errorf("%d codes for one press", n)
	}
	if n := w.count("select count(*) from link_code where hash::text like '%' || $1 || '%' or press::text like '%' || $1 || '%'", code); n != 0 {
		t.Error("the code itself is stored")
	}
	if inc := w.incident(id); inc.State != "open" {
		t.Fatalf("applied before linking: %+v", inc)
	}
	w.refused(404, api.ProblemNotFound, "hand", "POST", "/v1/users/nobody/link", `{"code": "`+code+`"}`)
	w.refused(404, api.ProblemNotFound, "hand", "POST", "/v1/users/bo/link", `{"code": "WRONG"}`)
	linked := want[api.Linked](w, 200, "hand", "POST", "/v1/users/bo/link", `{"code": "`+strings.ToLower(code)+`"}`)
	if linked.AccountID != "777" || !strings.Contains(linked.Applied, "You resolved it") {
		t.Errorf("%+v", linked)
	}
	if inc := w.incident(id); inc.State != "resolved" || inc.ResolvedBy != "Bo Lind" {
		t.Errorf("%+v", inc)
	}
	if h := w.heard(); h.to != "query-9" || !strings.Contains(h.text, "linked to Bo Lind (bo). The button that you pressed before: You resolved it.") {
		t.Errorf("whoever pressed is told %+v", h) // somebody else may have run the command
	}
	w.refused(404, api.ProblemNotFound, "hand", "POST", "/v1/users/bo/link", `{"code": "`+code+`"}`)
	// From now on the account is Bo.
	other := want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", strings.ReplaceAll(disk, "db-1", "db-2")).IncidentID
	w.call("", "POST", "/telegram/ops-telegram", telegramPress(10, 777, "ack", other), "X-Telegram-Bot-Api-Secret-Token", hook)
	w.heard()
	if inc := w.incident(other); inc.AcknowledgedBy != "Bo Lind" {
		t.Errorf("%+v", inc)
	}
}

func TestOldButtonsChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	for _, c := range [][2]string{{"dance", id}, {"ack", "not-an-id"}, {"ack", "01a22884-97a8-75f8-b925-a7f68764bda3"}} {
		body, header := slackPress(signing, "U0ANA", c[0], c[1], c[0]+c[1], time.Now())
		if status, _, b := w.call("", "POST", "/slack/interactions", body, header...); status != 200 {
			t.Errorf("%v: %d %s", c, status, b)
		}
		if h := w.heard(); !strings.Contains(h.text, "nothing was changed") {
			t.Errorf("%v: told %+v", c, h)
		}
	}
	if inc := w.incident(id); inc.State != "open" {
		t.Errorf("%+v", inc)
	}
}
