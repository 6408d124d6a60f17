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
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// slash writes "/tocsin text" in Slack and gives the private answer.
func (w *world) slash(user, text, trigger string) string {
	w.t.Helper()
	w.sendSlash(user, text, trigger)
	h := w.heard()
	if h.to != "https://hooks.slack.example.com/"+user {
		w.t.Errorf("told %+v", h)
	}
	return h.text
}

func (w *world) sendSlash(user, text, trigger string) {
	w.t.Helper()
	body := url.Values{
		"command": {"/tocsin"}, "text": {text}, "user_id": {user}, "user_name": {"someone"}, "channel_id": {"C0OPS"}, "trigger_id": {trigger},
		"response_url": {"https://hooks.slack.example.com/" + user},
	}.Encode()
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(signing))
	fmt.Fprintf(mac, "v0:%s:%s", stamp, body)
	status, _, b := w.call("", "POST", "/slack/commands", body, "Content-Type", "application/x-www-form-urlencoded",
		"X-Slack-Request-Timestamp", stamp, "X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
	if status != 200 {
		w.t.Fatalf("%d %s", status, b)
	}
}

// write writes to the bot in Telegram, alone with it.
func (w *world) write(update int, user int64, text string) {
	w.t.Helper()
	b, _ := json.Marshal(map[string]any{"update_id": update, "message": map[string]any{
		"message_id": 7, "from": map[string]any{"id": user, "first_name": "Some"}, "chat": map[string]any{"id": user, "type": "private"}, "text": text,
	}})
	if status, _, body := w.call("", "POST", "/telegram/ops-telegram", string(b), "X-Telegram-Bot-Api-Secret-Token", hook); status != 200 {
		w.t.Fatalf("%d %s", status, body)
	}
}

func TestCommandsOfLinkedPeople(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if said := w.slash("U0ANA", "who", "1"); !strings.Contains(said, "primary: Ana Torres") {
		t.Error(said)
	}
	if said := w.slash("U0ANA", "who nowhere", "2"); !strings.Contains(said, "no schedule nowhere") {
		t.Error(said)
	}
	if said := w.slash("U0ANA", "", "3"); !strings.Contains(said, "/tocsin silence") {
		t.Error(said)
	}
	for i, wrong := range []string{"silence", "silence alert.#", "silence alert.# 2h", "silence a b 2h why", `silence env=~"(" 2h why`, "silence alert.# 999d why"} {
		if said := w.slash("U0ANA", wrong, fmt.Sprint("w", i)); !strings.Contains(said, "Nothing was changed") {
			t.Errorf("%s: %s", wrong, said)
		}
	}
	if said := w.slash("U0ANA", `silence alert.# env=“staging two” 2h load  test`, "4"); !strings.Contains(said, "Silenced for 2 h: alert.# env=\"staging two\".") {
		t.Error(said)
	}
	l := want[api.List[api.Silence]](w, 200, "eye", "GET", "/v1/silences", "")
	if len(l.Items) != 1 || l.Items[0].Match != "alert.#" || l.Items[0].Matchers[0] != `env="staging two"` || l.Items[0].Reason != "load  test" && l.Items[0].Reason != "load test" || l.Items[0].Author != "Ana Torres" {
		t.Errorf("%+v", l.Items)
	}
	if n := w.count("select count(*) from audit where actor = 'user:ana' and action = 'silence_added'"); n != 1 {
		t.Errorf("%d lines in the audit trail", n)
	}
	for i, wrong := range []string{"override", "override primary", "override primary soon", "override nowhere 2h", "override primary nobody 2h", "override primary 999d"} {
		if said := w.slash("U0BO", wrong, fmt.Sprint("o", i)); !strings.Contains(said, "Nothing was changed") {
			t.Errorf("%s: %s", wrong, said)
		}
	}
	if said := w.slash("U0BO", "override primary 2h at the dentist", "6"); !strings.Contains(said, "Bo Lind is on call for primary") {
		t.Error(said)
	}
	if said := w.slash("U0ANA", "who", "7"); !strings.Contains(said, "primary: Bo Lind until") {
		t.Error(said)
	}
	if said := w.slash("U0BO", "override primary ana 1h", "8"); !strings.Contains(said, "Ana Torres is on call for primary") {
		t.Error(said)
	}
	if n := w.count("select count(*) from audit where actor = 'user:bo' and action = 'override_added'"); n != 2 {
		t.Errorf("%d lines of overrides in the audit trail", n)
	}
	// Slack sends it again: there is one silence, and nobody is told twice.
	w.sendSlash("U0ANA", `silence alert.# env=“staging two” 2h load  test`, "4")
	if said := w.slash("U0ANA", "who", "5"); !strings.Contains(said, "primary") {
		t.Error("the next answer is", said)
	}
	if n := w.count("select count(*) from silence"); n != 1 {
		t.Errorf("%d silences", n)
	}
}

// What the database has no place for is left out: a callback that can't be stored comes again with every poll, before all others.
func TestWhatCannotBeStoredIsLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if said := w.slash("U0ANA", "who \x00primary\xff", "1\x00"); !strings.Contains(said, "no schedule primary\uFFFD") {
		t.Error(said)
	}
	w.exec("insert into account (provider, account_id, user_id, linked_at, linked_by) values ('telegram', '501', 'ana', now(), 'test')")
	w.write(41, 501, "/silence alert.# 2h new\x00 disks")
	if h := w.heard(); !strings.Contains(h.text, "Silenced") {
		t.Error(h)
	}
	id := w.open()
	body, header := slackPress(signing, "U0ANA", "ack", id+"\x00", "5.1", time.Now())
	if status, _, b := w.call("", "POST", "/slack/interactions", body, header...); status != 200 {
		t.Fatalf("%d %s", status, b)
	}
	if h := w.heard(); !strings.Contains(h.text, "You acknowledged it") {
		t.Error(h)
	}
}

// Tabs and line breaks part words as blanks do.
func TestCommandsOverSeveralLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if said := w.slash("U0ANA", "who\nprimary", "1"); !strings.Contains(said, "primary: Ana Torres") {
		t.Error(said)
	}
	w.exec("insert into account (provider, account_id, user_id, linked_at, linked_by) values ('telegram', '501', 'ana', now(), 'test')")
	w.write(41, 501, "/who\tprimary")
	if h := w.heard(); !strings.Contains(h.text, "primary: Ana Torres") {
		t.Error(h)
	}
}

func TestUnlinkedPeopleMayOnlyLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, text := range []string{"who", "silence alert.# 2h x", "help"} {
		if said := w.slash("U0NEW", text, fmt.Sprint(i)); !strings.Contains(said, "https://tocsin.example.com/link/") {
			t.Errorf("%s: %s", text, said)
		}
	}
	if n := w.count("select count(*) from silence"); n != 0 {
		t.Error("a stranger made a silence")
	}
	// In a group, what is not ours is left alone.
	b := `{"update_id": 5, "message": {"message_id": 1, "from": {"id": 5, "first_name": "X"}, "chat": {"id": -100, "type": "supergroup"}, "text": "/weather now"}}`
	w.call("", "POST", "/telegram/ops-telegram", b, "X-Telegram-Bot-Api-Secret-Token", hook)
	w.write(6, 5, "/who")
	if h := w.heard(); h.to != "message:5/7" {
		t.Errorf("told %+v", h)
	}
}

// A code from the command line links whoever hands it in from a chat, once, and applies what they had pressed before.
func TestAnInvitationLinksAndAppliesWhatWasPressedBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	invite := func() string {
		t.Helper()
		l := want[api.Linked](w, 200, "hand", "POST", "/v1/users/bo/link", "")
		if l.Invitation == nil || l.Invitation.Slack != "/tocsin link "+l.Invitation.Code || !l.Invitation.ExpiresAt.After(time.Now()) {
			t.Fatalf("%+v", l)
		}
		return l.Invitation.Code
	}
	w.refused(403, api.ProblemForbidden, "eye", "POST", "/v1/users/bo/link", "")
	w.refused(404, api.ProblemNotFound, "hand", "POST", "/v1/users/nobody/link", "")
	code := invite()
	if n := w.count("select count(*) from invitation where hash::text like '%' || $1 || '%'", code); n != 0 {
		t.Error("the code itself is stored")
	}
	w.call("", "POST", "/telegram/ops-telegram", telegramPress(1, 777, "ack", id), "X-Telegram-Bot-Api-Secret-Token", hook)
	w.heard()
	w.write(2, 777, "/start WRONGCODE")
	if h := w.heard(); !strings.Contains(h.text, "unknown, used already or older") {
		t.Errorf("told %+v", h)
	}
	w.write(3, 777, "/start "+strings.ToLower(code))
	if h := w.heard(); !strings.Contains(h.text, "linked to Bo Lind (bo)") || !strings.Contains(h.text, "You acknowledged it") {
		t.Errorf("told %+v", h)
	}
	if inc := w.incident(id); inc.AcknowledgedBy != "Bo Lind" {
		t.Errorf("%+v", inc)
	}
	w.write(4, 888, "/start "+code)
	if h := w.heard(); !strings.Contains(h.text, "unknown, used already or older") {
		t.Errorf("used twice: %+v", h)
	}
	if said := w.slash("U0BOTWO", "link "+invite(), "6"); !strings.Contains(said, "linked to Bo Lind") {
		t.Error(said)
	}
	l := want[api.List[api.User]](w, 200, "eye", "GET", "/v1/users", "")
	if bo := l.Items[1]; len(bo.Accounts) != 2 || bo.Accounts[0].LinkedBy != "token:hand" || bo.Contacts[0].Address != "file" {
		t.Errorf("%+v", bo)
	}
	if n := w.count("select count(*) from callback where body::text like '%' || $1 || '%'", code); n != 0 {
		t.Error("the code itself is stored with what was written")
	}
	w.refused(404, api.ProblemNotFound, "hand", "POST", "/v1/users/ana/unlink", `{"provider": "slack"}`)
	if u := want[api.User](w, 200, "hand", "POST", "/v1/users/bo/unlink", `{"provider": "telegram"}`); len(u.Accounts) != 1 {
		t.Errorf("%+v", u)
	}
	other := want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", strings.ReplaceAll(disk, "db-1", "db-2")).IncidentID
	w.call("", "POST", "/telegram/ops-telegram", telegramPress(9, 777, "ack", other), "X-Telegram-Bot-Api-Secret-Token", hook)
	w.heard()
	if inc := w.incident(other); inc.State != "open" {
		t.Errorf("an unlinked account acknowledged: %+v", inc)
	}
}

// A press is not applied when its code is over: it may be of yesterday.
func TestAnOldPressIsNotAppliedByLinking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	w.call("", "POST", "/telegram/ops-telegram", telegramPress(1, 777, "ack", id), "X-Telegram-Bot-Api-Secret-Token", hook)
	w.heard()
	w.exec("update link_code set expires_at = now() - interval '1 second'")
	w.write(3, 777, "/start "+want[api.Linked](w, 200, "hand", "POST", "/v1/users/bo/link", "").Invitation.Code)
	if h := w.heard(); !strings.Contains(h.text, "linked to Bo Lind") || strings.Contains(h.text, "acknowledged") {
		t.Errorf("told %+v", h)
	}
	if inc := w.incident(id); inc.State != "open" {
		t.Errorf("%+v", inc)
	}
}

// The replica that stored and answered a press dies before it applies it: another one applies it, once, and answers.
func TestWhatWasAnsweredIsAppliedByAnyReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	body := fmt.Sprintf(`{"provider": "slack", "notifier": "ops-slack", "action": "ack", "value": %q, "account": "U0ANA", "to": "https://hooks.slack.example.com/x"}`, id)
	w.exec("insert into callback (key, at, body, due_at) values ('slack:dead', now(), $1, now() - interval '1 second')", body)
	w.exec("insert into callback (key, at, body, due_at) values ('slack:young', now(), $1, now() + interval '1 hour')", body)
	for range 2 {
		if err := w.server.ApplyDue(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if h := w.heard(); !strings.Contains(h.text, "You acknowledged it") {
		t.Errorf("told %+v", h)
	}
	w.server.Wait(t.Context())
	if n := w.count("select count(*) from callback where body is null and due_at is null and key = 'slack:dead'"); n != 1 {
		t.Error("it is still to be applied")
	}
	if n := w.count("select count(*) from callback where due_at is not null and key = 'slack:young'"); n != 1 {
		t.Error("what another replica is at was taken from it")
	}
	if n := w.count("select count(*) from audit where action = 'acknowledge'"); n != 1 {
		t.Errorf("%d lines in the audit trail", n)
	}
}

// The database is slow: Slack, which waits for three seconds and does not ask again, has its answer before, and the press counts.
func TestAPressCountsWhenTheDatabaseIsSlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	conn, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "lock table callback in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	body, header := slackPress(signing, "U0ANA", "ack", id, "5.1", time.Now())
	if status, _, b := w.call("", "POST", "/slack/interactions", body, header...); status != 200 {
		t.Fatalf("%d %s", status, b)
	}
	// Telegram asks again.
	if status, _, b := w.call("", "POST", "/telegram/ops-telegram", telegramPress(1, 777, "ack", id), "X-Telegram-Bot-Api-Secret-Token", hook); status != 503 {
		t.Fatalf("%d %s", status, b)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := w.heard(); !strings.Contains(h.text, "You acknowledged it") {
		t.Errorf("told %+v", h)
	}
}

// The callback is answered before it is applied, and what is stored of it until then does not hold the code.
func TestACallbackIsAnsweredBeforeItIsApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	code := want[api.Linked](w, 200, "hand", "POST", "/v1/users/bo/link", "").Invitation.Code
	conn, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select * from invitation for update"); err != nil {
		t.Fatal(err)
	}
	w.write(3, 777, "/start "+code) // it is answered, though nobody can use the code up now
	if n := w.count("select count(*) from callback where body is not null and body::text not like '%' || $1 || '%' and due_at > now()", code); n != 1 {
		t.Errorf("%d stored without the code", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := w.heard(); !strings.Contains(h.text, "linked to Bo Lind") {
		t.Errorf("told %+v", h)
	}
}

// What can't be applied is tried again, then given up, and whoever pressed is told so.
func TestAPressThatCannotBeAppliedIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	w.exec("create function no() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$")
	w.exec("create trigger no before insert on audit for each row execute function no()")
	body := fmt.Sprintf(`{"provider": "slack", "notifier": "ops-slack", "action": "ack", "value": %q, "account": "U0ANA", "to": "https://hooks.slack.example.com/x"}`, id)
	for key, age := range map[string]string{"slack:old": "11 minutes", "slack:young": "1 minute"} {
		w.exec("insert into callback (key, at, body, due_at) values ($1, now() - $2::text::interval, $3, now() - interval '1 second')", key, age, body)
	}
	if err := w.server.ApplyDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := w.heard(); !strings.Contains(h.text, "could not be applied, nothing was changed") {
		t.Errorf("told %+v", h)
	}
	w.server.Wait(t.Context())
	if n := w.count("select count(*) from callback where (due_at is null and body is null) = (key = 'slack:old')"); n != 2 {
		t.Error("the old one is open, or the young one given up")
	}
	if inc := w.incident(id); inc.State != "open" {
		t.Errorf("%+v", inc)
	}
}
