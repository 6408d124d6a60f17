package slacktest_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/slack-go/slack"

	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

// TestPageInABrowser runs the page's script under its own content security policy: a message shows up by itself, a
// press sends the callback and its private answer appears, without the page being loaded again.
func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed; apt-get install chromium")
	}
	s := slacktest.Start(t, slacktest.Options{})
	in := receive(t, s.Options().SigningSecret)
	s.SetInteractionURL(in.url)
	api := client(s)

	ctx, stop := chromedp.NewExecAllocator(t.Context(), chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("headless", true), chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("no-first-run", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-sync", true))
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	do := func(steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, steps...); err != nil {
			t.Fatal(err)
		}
	}
	// shows waits in the page itself, by its own changes, for a text.
	shows := func(text string) {
		t.Helper()
		js := `new Promise((done) => { const has = () => document.body.innerText.includes(` + "`" + text + "`" + `) && (done(true), true);
			if (!has()) { const o = new MutationObserver(() => has() && o.disconnect()); o.observe(document.body, {childList: true, subtree: true, characterData: true}); } setTimeout(() => done(false), 15000); })`
		if ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](js, chromedp.EvalAwaitPromise)); err != nil || !ok {
			t.Fatalf("the page never showed %q: %v", text, err)
		}
	}

	do(chromedp.Navigate(s.URL()+"/?c=C0OPS&as=U0BO"), chromedp.Evaluate[chromedp.Void](`void (window.loaded = "once")`))
	_, ts, err := api.PostMessage("C0OPS", slack.MsgOptionText("x", false), card("#e01e5a", "disk full"))
	if err != nil {
		t.Fatal(err)
	}
	shows("disk full")
	do(chromedp.Click(`button[value="ack"]`))
	select {
	case cb := <-in.got:
		if cb.User.ID != "U0BO" || cb.Container.MessageTs != ts {
			t.Errorf("callback: %+v", cb)
		}
		if err := slack.PostWebhook(cb.ResponseURL, &slack.WebhookMessage{Text: "taken by you"}); err != nil {
			t.Fatal(err)
		}
	case err := <-in.bad:
		t.Fatal(err)
	case <-time.After(15 * time.Second):
		t.Fatal("the press sent no callback")
	}
	shows("taken by you")
	if _, _, _, err := api.UpdateMessage("C0OPS", ts, slack.MsgOptionText("x", false), card("#ecb22e", "disk full, acknowledged")); err != nil {
		t.Fatal(err)
	}
	shows("disk full, acknowledged")
	once, err := chromedp.Run(ctx, chromedp.Evaluate[string](`String(window.loaded)`))
	if err != nil || !strings.Contains(once, "once") {
		t.Errorf("the page was loaded again: %q, %v", once, err)
	}
}
