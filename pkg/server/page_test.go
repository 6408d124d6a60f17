package server_test

import (
	"context"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

func TestIncidentHasItsAlerts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	send := func(host, status string) api.Accepted {
		t.Helper()
		return want[api.Accepted](w, http.StatusAccepted, "in", http.MethodPost, "/v1/alerts",
			`{"kind": "disk_full", "criticality": "critical", "key": "disks", "status": "`+status+`", "title": "Disk of `+host+`", "labels": {"host": "`+host+`"}}`)
	}
	id := send("db-1", "firing").IncidentID
	send("db-1", "firing")
	send("db-2", "firing")
	send("db-1", "resolved")
	inc := want[api.Incident](w, http.StatusOK, "eye", http.MethodGet, "/v1/incidents/"+id, "")
	if len(inc.Alerts) != 2 {
		t.Fatalf("%+v", inc.Alerts)
	}
	firing, resolved := inc.Alerts[0], inc.Alerts[1]
	if firing.Status != "firing" || firing.Labels["host"] != "db-2" || firing.Title != "Disk of db-2" || firing.Criticality != "critical" || firing.Count != 1 || firing.StartsAt.IsZero() || firing.EndsAt != nil {
		t.Errorf("%+v", firing)
	}
	if resolved.Status != "resolved" || resolved.Labels["host"] != "db-1" || resolved.Count != 2 || resolved.EndsAt == nil {
		t.Errorf("%+v", resolved)
	}
	if l := want[api.List[api.Incident]](w, http.StatusOK, "eye", http.MethodGet, "/v1/incidents", ""); len(l.Items) != 1 || l.Items[0].Alerts != nil {
		t.Errorf("the list has the alerts too: %+v", l)
	}
}

// The page is the same for all, holds no data, and may run and load nothing but its own.
func TestIncidentPageHoldsNoData(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := want[api.Accepted](w, http.StatusAccepted, "in", http.MethodPost, "/v1/alerts", disk).IncidentID
	status, header, page := w.call("", http.MethodGet, "/incidents/"+id, "")
	if status != http.StatusOK || header.Get("Content-Type") != "text/html; charset=utf-8" || header.Get("Cache-Control") != "no-store" || header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("%d %v", status, header)
	}
	policy := header.Get("Content-Security-Policy")
	if !regexp.MustCompile(`^default-src 'none'; script-src 'sha256-[^' ]+'; style-src 'sha256-[^' ]+'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'$`).MatchString(policy) {
		t.Errorf("policy: %s", policy)
	}
	for _, foreign := range []string{"Disk of db-1", id, "https://", "http://", "innerHTML", " src=", " style=", " onclick="} {
		if strings.Contains(string(page), foreign) {
			t.Errorf("the page holds %q", foreign)
		}
	}
	_, _, other := w.call("", http.MethodGet, "/incidents/01a22884-97a8-75f8-b925-a7f68764bda3", "")
	if string(other) != string(page) {
		t.Error("the page tells whether there is an incident")
	}
	w.refused(http.StatusNotFound, api.ProblemNotFound, "", http.MethodGet, "/incidents/none", "")
}

// browser is a page of Chromium, without the network and with a profile of its own.
func browser(t *testing.T) context.Context {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed; apt-get install chromium")
	}
	ctx, stop := chromedp.NewExecAllocator(t.Context(), chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("headless", true), chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("no-first-run", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-sync", true))
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// attempted writes attempts of a delivery as a worker would.
func (w *world) attempted(incident string) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	const attempt = `insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at, finished_at, outcome, evidence, closed_by, reason, error, answer, phase, form, duration_ms)
		select gen_random_uuid(), id, $2, 1, 'k', 1, 'create', 'C0OPS', 'replica-a', gen_random_uuid(), now(), now(), $3, $4, 'worker', $5, $6, $7, $8, $9, 132 from delivery where incident_id = $1 and kind = 'card'`
	for i, a := range [][]any{
		{"unknown", "possibly_sent", "timeout", "no answer within 10s", "", "request", ""},
		{"failed", "answered", "payload:invalid_blocks", "Slack answered invalid_blocks", `{"ok":false,"error":"invalid_blocks"}`, "answer", ""},
		{"sent", "answered", "", "", `{"ok":true}`, "answer", "plain"},
	} {
		if _, err := conn.Exec(w.t.Context(), attempt, append([]any{incident, i + 1}, a...)...); err != nil {
			w.t.Fatal(err)
		}
	}
}

const hostile = `<img src=x onerror="document.title='owned'"> </script><b>Disk</b>`

func TestIncidentPageInABrowser(t *testing.T) {
	t.Parallel()
	ctx := browser(t)
	w := newWorld(t)
	id := want[api.Accepted](w, http.StatusAccepted, "in", http.MethodPost, "/v1/alerts",
		`{"kind": "disk_full", "criticality": "critical", "title": "<img src=x onerror=\"document.title='owned'\"> </script><b>Disk</b>", "labels": {"host": "db-1"}}`).IncidentID
	w.attempted(id)
	// says waits in the page itself, by its own changes, until it shows a text, or shows it no more.
	says := func(text string, shown bool) {
		t.Helper()
		not := ""
		if !shown {
			not = "!"
		}
		js := `new Promise((done) => { const has = () => ` + not + `document.body.innerText.includes(` + "`" + text + "`" + `) && (done(""), true);
			if (!has()) { const o = new MutationObserver(() => has() && o.disconnect()); o.observe(document.body, {childList: true, subtree: true, characterData: true, attributes: true}); } setTimeout(() => done(document.body.innerText), 15000); })`
		if got, err := chromedp.Run(ctx, chromedp.Evaluate[string](js, chromedp.EvalAwaitPromise)); err != nil || got != "" {
			t.Fatalf("%q shown: want %t; the page says %q (%v)", text, shown, got, err)
		}
	}
	do := func(steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, steps...); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(js string) string {
		t.Helper()
		got, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+js+")"))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	give := func(token string) {
		t.Helper()
		ask("document.getElementById('token').value = `" + token + "`")
		ask("document.querySelector('form button').click()")
	}
	do(chromedp.Navigate(w.http.URL + "/incidents/" + id))
	says("needs an API token", true)
	says("Disk", false)
	give("wrong")
	says("is not known here", true)
	give(fileTokens["in"])
	says("this needs read", true)
	if got := ask("sessionStorage.getItem('tocsin-token')"); got != "null" {
		t.Errorf("a token that was refused is kept: %q", got)
	}
	give(fileTokens["eye"])
	for _, text := range []string{
		hostile, "host=db-1", "critical", "1 firing, 0 resolved, 1 received", "card through ops-slack to channel", "no answer within 10s", `answer: {"ok":false,"error":"invalid_blocks"}`,
		"create C0OPS (plain)", "possibly_sent, request", "132\u00a0ms", "replica-a", "page through", "source:native",
	} {
		says(text, true)
	}
	says(`{"ok":true}`, false)
	if got := ask("document.title + ' ' + document.querySelectorAll('img').length + ' ' + (sessionStorage.getItem('tocsin-token') !== null) + ' ' + localStorage.length + ' ' + document.cookie.length"); got != hostile+" · tocsin 0 true 0 0" {
		t.Errorf("%q", got)
	}
	if got := ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth"); got != "true" {
		t.Error("the page is wider than its window")
	}
	says("then it rings again", false)
	want[api.Incident](w, http.StatusOK, "hand", http.MethodPost, "/v1/incidents/"+id+"/snooze", `{"for": "2h"}`)
	do(chromedp.Navigate(w.http.URL + "/incidents/" + id)) // the same tab
	says("card through ops-slack to channel", true)
	says("then it rings again", true)
	ask("document.getElementById('forget').click()")
	says("needs an API token", true)
	says("Disk", false)
	do(chromedp.Navigate(w.http.URL + "/incidents/01a22884-97a8-75f8-b925-a7f68764bda3"))
	says("needs an API token", true)
	give(fileTokens["eye"])
	says("there is none with this id", true)
}
