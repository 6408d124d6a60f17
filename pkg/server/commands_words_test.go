package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// linkAna links Ana's account in Telegram.
func (w *world) linkAna() {
	w.t.Helper()
	if err := w.store.InTx(w.t.Context(), func(tx *store.Tx) error { return tx.PutAccount(w.t.Context(), "telegram", "501", "ana", "test") }); err != nil {
		w.t.Fatal(err)
	}
}

// What can't be done is said in words that name what is wrong and how to mend it, as that chat writes commands, and changes nothing.
func TestWrongCommandsSayHowToMendThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.linkAna()
	for i, c := range []struct{ text, says string }{
		{"dance", "There is no command dance.\nYou can write:"},
		{"who nowhere", "There is no schedule nowhere. There are: primary."},
		{"override", "Write the schedule, whom if not you, and how long: SIGNoverride primary 2h"},
		{"override nowhere 2h", "There is no schedule nowhere. There are: primary."},
		{"override 2h", "There is no schedule 2h. There are: primary."},
		{"override primary", "For how long? Write the schedule"},
		{"override primary bo", "For how long? Write the schedule"},
		{"override primary zoe 2h", "There is no user zoe. There are: ana, bo. Nothing"},
		{"override primary soon", `There is no user soon. There are: ana, bo. "soon" is no length of time: write 30m, 2h or 1d.`},
		{"override primary 2 hours", `"2" is no length of time`},
		{"override primary bo soon", `"soon" is no length of time: write 30m, 2h or 1d.`},
		{"override primary bo for", `"for" is no length of time`},
		{"override primary 0s", `"0s" is too short.`},
		{"override primary 999d", "An override lasts a year at most"},
		{"silence", "Write what is to be kept back, how long, and why: SIGNsilence alert.disk_full.# 2h new disks."},
		{"silence 2h why", "Write what is to be kept back"},
		{"silence alert.#", "Write what is to be kept back"},
		{"silence alert.# 2h", "Say why: incidents show it."},
		{"silence alert.# until tomorrow", `"until" is no length of time`},
		{"silence alert.# -2h why", `"-2h" is no length of time`},
		{"silence alert.# 999d why", "A silence lasts a year at most"},
		{"silence alert.a..b 2h why", `Word 3 of the pattern "alert.a..b" is empty`},
		{"silence disk_full 2h why", "No alert has the topic disk_full: topics are alert.KIND.CRITICALITY.JOB. Write alert.disk_full.# for a kind"},
		{`silence env="staging 2h why`, `A quotation mark is not closed: write env="staging".`},
		{`silence env=~"(" 2h why`, `the regular expression "(" is wrong`},
		{"link WRONG", "This code is unknown, used already or older than 15 minutes. Write SIGNlink without a code"},
	} {
		for sign, say := range map[string]func(string) string{
			"/tocsin ": func(text string) string { return w.slash("U0ANA", text, fmt.Sprint("w", i)) },
			"/":        func(text string) string { w.write(100+i, 501, "/"+text); return w.heard().text },
		} {
			said := say(c.text)
			if !strings.Contains(said, strings.ReplaceAll(c.says, "SIGN", sign)) {
				t.Errorf("%s%s: %s", sign, c.text, said)
			}
			if command := strings.Fields(c.text)[0]; (command == "override" || command == "silence") != strings.HasSuffix(said, " Nothing was changed.") {
				t.Errorf("%s%s: %s", sign, c.text, said)
			}
		}
	}
	if n := w.count("select (select count(*) from silence) + (select count(*) from schedule_override)"); n != 0 {
		t.Errorf("%d silences and overrides were made", n)
	}
}

// The same commands, written to the bot by somebody whose account is linked, alone and in a group.
func TestCommandsInTelegram(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.linkAna()
	update := 0
	say := func(text string) string {
		t.Helper()
		update++
		w.write(update, 501, text)
		h := w.heard()
		if h.to != "message:501/7" {
			t.Errorf("told %+v", h)
		}
		return h.text
	}
	for _, c := range []struct{ text, says string }{
		{"/who", "primary: Ana Torres"},
		{"/who@tocsin_bot primary", "primary: Ana Torres"},
		{"/help", "/override SCHEDULE"},
		{"/override primary @bo for 2h at the dentist", "Bo Lind is on call for primary for 2 h from now on."},
		{"/who", "primary: Bo Lind until"},
		{`/silence env=“staging” for 2h load test`, `Silenced for 2 h: env="staging".`},
		{"/silence alert.disk_full.# 1d12h new disks", "Silenced for 1 d 12 h: alert.disk_full.#."},
		{"/link", "This account is linked to Ana Torres (ana)."},
		{"/start", "This account is linked to Ana Torres (ana)."},
	} {
		if said := say(c.text); !strings.Contains(said, c.says) {
			t.Errorf("%s: %s", c.text, said)
		}
	}
	b := `{"update_id": 90, "message": {"message_id": 3, "from": {"id": 501, "first_name": "Ana"}, "chat": {"id": -100, "type": "supergroup"}, "text": "/who"}}`
	w.call("", "POST", "/telegram/ops-telegram", b, "X-Telegram-Bot-Api-Secret-Token", hook)
	if h := w.heard(); h.to != "message:-100/3" || !strings.Contains(h.text, "primary: Bo Lind") {
		t.Errorf("in a group told %+v", h)
	}
	l := want[api.List[api.Silence]](w, 200, "eye", "GET", "/v1/silences", "")
	if len(l.Items) != 2 || l.Items[1].Reason != "load test" || l.Items[0].Reason != "new disks" {
		t.Errorf("%+v", l.Items)
	}
	if n := w.count("select count(*) from audit where actor = 'user:ana' and action in ('silence_added', 'override_added')"); n != 3 {
		t.Errorf("%d lines in the audit trail", n)
	}
}

// Where nobody is on call, whoever takes it by a command is on call: an override that keeps gaps would do nothing.
func TestAnOverrideByCommandCoversAGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file.Schedules[0].Layers = nil
	if said := w.slash("U0ANA", "who", "1"); said != "primary: nobody" {
		t.Error(said)
	}
	if said := w.slash("U0BO", "override primary 2h", "2"); !strings.Contains(said, "Bo Lind is on call for primary for 2 h from now on. Nobody was: gaps in this time are covered as well.") {
		t.Error(said)
	}
	if said := w.slash("U0ANA", "who", "3"); !strings.Contains(said, "primary: Bo Lind until") {
		t.Error(said)
	}
}

// A code is worth nothing when its time is over, whoever made it and wherever it is handed in.
func TestCodesThatAreTooOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	said := w.slash("U0NEW", "link", "1")
	_, code, _ := strings.Cut(said, "/link/")
	code, _, _ = strings.Cut(code, " ")
	invitation := want[api.Linked](w, 200, "hand", "POST", "/v1/users/bo/link", "").Invitation.Code
	w.exec("update link_code set expires_at = now() - interval '1 second'")
	w.exec("update invitation set expires_at = now() - interval '1 second'")
	w.refused(404, api.ProblemNotFound, "hand", "POST", "/v1/users/bo/link", `{"code": "`+code+`"}`)
	if status, _, b := w.call("", "GET", "/link/"+code, ""); status != 404 || !strings.Contains(string(b), "older than 15 minutes") || strings.Contains(string(b), "U0NEW") {
		t.Errorf("%d %s", status, b)
	}
	if said := w.slash("U0NEW", "link "+invitation, "2"); !strings.Contains(said, "older than 15 minutes") {
		t.Error(said)
	}
	if n := w.count("select count(*) from account"); n != 0 {
		t.Errorf("%d accounts are linked", n)
	}
}
