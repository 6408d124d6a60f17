package slacktest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/slack-go/slack"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

func get(t *testing.T, u string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %d %s %v", u, resp.StatusCode, body, err)
	}
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'self'") || strings.Contains(csp, "unsafe") {
		t.Errorf("content security policy: %q", csp)
	}
	return string(body)
}

var (
	quotedValue = regexp.MustCompile(`"[^"]*"`)
	anyTag      = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)
	handler     = regexp.MustCompile(`(?i)\son[a-z]+\s*=`)
	badAddress  = regexp.MustCompile(`(?i)(href|src|action)\s*=\s*["']?\s*(javascript|data:text|vbscript)`)
	scriptTag   = regexp.MustCompile(`(?i)<(script|iframe|img|object|embed|style|base|meta http)`)
)

// attacks are texts that would be code if any of them were taken for HTML.
var attacks = []string{
	`<script>alert(1)</script>`, `&lt;script&gt;alert(1)&lt;/script&gt;`, `<javascript:alert(1)|click>`, `<https://x.example/"onmouseover="alert(1)|click>`,
	`<https://x.example/|<img src=x onerror=alert(1)>>`, "```<img src=x onerror=alert(1)>```", "`<svg onload=alert(1)>`", `*<b onclick=alert(1)>x</b>*`,
	`<@U0ANA|"><script>alert(1)</script>>`, `<!date^1^{date}|<script>x</script>>`, `"><iframe src=//evil.example>`, `{{template "frame"}}`, `&gt; <script>1</script>`,
}

func checkHarmless(t *testing.T, name, page string) {
	t.Helper()
	scripts := scriptTag.FindAllString(page, -1)
	if len(scripts) != 1 { // the page's own
		t.Errorf("%s: tags %v", name, scripts)
	}
	for _, tag := range anyTag.FindAllString(page, -1) {
		// What stands inside quotes is a value; the quotes themselves are escaped in it, or the tag would be torn.
		if handler.MatchString(quotedValue.ReplaceAllString(tag, `""`)) || badAddress.MatchString(tag) {
			t.Errorf("%s: %s", name, tag)
		}
	}
}

func TestMessagesStayText(t *testing.T) {
	t.Parallel()
	users := []slacktest.User{{ID: "U0ANA", Name: "ana", RealName: `<script>alert("ana")</script>`}}
	s := slacktest.Start(t, slacktest.Options{TeamName: "<script>team</script>", Users: users, Channels: []slacktest.Channel{{ID: "C0OPS", Name: "<img src=x onerror=alert(1)>", Topic: "<script>"}}})
	api := client(s)
	var parent string
	for i, a := range attacks {
		mrk := slack.NewTextBlockObject("mrkdwn", a, false, false)
		plain := slack.NewTextBlockObject("plain_text", a, true, false)
		button := slack.NewButtonBlockElement(a, a, slack.NewTextBlockObject("plain_text", a, false, false))
		blocks := []slack.Block{slack.NewHeaderBlock(plain), slack.NewSectionBlock(mrk, []*slack.TextBlockObject{mrk, plain}, nil), slack.NewContextBlock("", mrk, plain), slack.NewActionBlock("", button)}
		_, ts, err := api.PostMessage("C0OPS", slack.MsgOptionText(a, false), slack.MsgOptionBlocks(blocks...),
			slack.MsgOptionAttachments(slack.Attachment{Color: `red" onload="alert(1)`, Title: a, TitleLink: "javascript:alert(1)", Text: a, Footer: a, Fields: []slack.AttachmentField{{Title: a, Value: a}}}), keyed(a))
		if err != nil {
			t.Fatalf("%s: %v", a, err)
		}
		if i == 0 {
			parent = ts
		}
		if _, _, err := api.PostMessage("C0OPS", slack.MsgOptionText(a, false), slack.MsgOptionTS(parent)); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := api.UpdateMessage("C0OPS", ts, slack.MsgOptionText(a+" edited", false)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Say("C0OPS", "U0ANA", a); err != nil {
			t.Fatal(err)
		}
	}
	s.MustFault(chattest.Fault{Kind: chattest.Code, Code: attacks[0], Channel: attacks[0]})
	q := url.QueryEscape
	for name, u := range map[string]string{
		"channel": "/?c=C0OPS&thread=" + parent, "faults": "/?view=faults", "ledger": "/?view=ledger",
		"parameters": "/?c=" + q(attacks[0]) + "&as=" + q(attacks[0]) + "&note=" + q(attacks[0]) + "&only=" + q(`"><script>`) + "&thread=" + q(attacks[0]),
	} {
		checkHarmless(t, name, get(t, s.URL()+u))
	}
	if page := get(t, s.URL()+"/?c=C0OPS"); !strings.Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;") {
		t.Error("the text itself must still be readable")
	}
}

func TestPageDrawsWhatSlackWould(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	api := client(s)
	_, ts, err := api.PostMessage("C0OPS", slack.MsgOptionText("one", false), card("#e01e5a", "🔴 disk full"))
	if err != nil {
		t.Fatal(err)
	}
	for _, title := range []string{"🟡 disk full", "🟢 disk full"} {
		if _, _, _, err := api.UpdateMessage("C0OPS", ts, slack.MsgOptionText("one", false), card("#2eb67d", title)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := api.PostMessage("C0OPS", slack.MsgOptionText("*bold* _it_ ~no~ `code` <https://example.com/a?b=1&amp;c=2|link> <@U0BO> :fire: a &lt; b snake_case_name 2*3*4", false), slack.MsgOptionTS(ts)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := api.PostMessage("U0ANA", slack.MsgOptionText("paged", false)); err != nil {
		t.Fatal(err)
	}
	page := get(t, s.URL()+"/?c=C0OPS&as=U0BO&thread="+ts)
	for _, want := range []string{
		"Simulated Slack", "nothing leaves this machine", "# ops", `fill="#2eb67d"`, "🟢 disk full", "(edited 2 times)", "2 earlier versions", "🔴 disk full",
		`name="action" value="ack">Acknowledge</button>`, `name="as" value="U0BO"`, "<strong>bold</strong> <em>it</em> <s>no</s> <code>code</code>",
		`<a href="https://example.com/a?b=1&amp;c=2" rel="noopener noreferrer" target="_blank">link</a>`, `<span class="mention">@Bo Lind</span> 🔥 a &lt; b snake_case_name 2*3*4`,
		"Direct messages of tocsin", "Ana Torres", "Thread", "1 reply", "and tools",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "not draw it") {
		t.Error("a block was not drawn")
	}
	link, err := api.GetPermalink(&slack.PermalinkParameters{Channel: "C0OPS", Ts: ts})
	if err != nil {
		t.Fatal(err)
	}
	if landed := get(t, link); !strings.Contains(landed, `id="m`+strings.ReplaceAll(ts, ".", "")) {
		t.Error("the permalink does not lead to the message")
	}
	if l := get(t, s.URL()+"/?view=ledger"); !strings.Contains(l, "chat.update") || strings.Contains(l, s.Options().Token) {
		t.Error("the ledger view lacks the update, or shows the token")
	}
}

func TestFormsOfThePage(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	in := receive(t, s.Options().SigningSecret)
	s.SetInteractionURL(in.url)
	_, ts, err := client(s).PostMessage("C0OPS", slack.MsgOptionText("x", false), card("#e01e5a", "disk"))
	if err != nil {
		t.Fatal(err)
	}
	post := func(path string, form url.Values, origin string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Location")
	}
	press := url.Values{"ts": {ts}, "action": {"ack"}, "as": {"U0CHO"}, "back": {"/?c=C0OPS"}}
	if status, to := post("/page/press", press, ""); status != 303 || to != "/?c=C0OPS" {
		t.Errorf("press: %d %s", status, to)
	}
	if cb := <-in.got; cb.User.ID != "U0CHO" {
		t.Errorf("pressed as %s", cb.User.ID)
	}
	press.Set("back", "https://evil.example/")
	if _, to := post("/page/press", press, ""); strings.Contains(to, "evil") {
		t.Errorf("the form leads away: %s", to)
	}
	if status, _ := post("/page/press", press, "https://evil.example"); status != 403 {
		t.Errorf("another site pressed a button: %d", status)
	}
	if status, to := post("/page/say", url.Values{"channel": {"C0OPS"}, "as": {"U0BO"}, "text": {"hi"}, "back": {"/?c=C0OPS"}}, ""); status != 303 || to != "/?c=C0OPS" || s.Messages("C0OPS")[1].User != "U0BO" {
		t.Errorf("say: %d %s", status, to)
	}
}

func TestThousandsOfMessages(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	var early string
	for i := range 5000 {
		ts, err := s.Say("C0OPS", "U0ANA", fmt.Sprintf("number %d.", i))
		if err != nil {
			t.Fatal(err)
		}
		if i == 1000 {
			early = ts
		}
	}
	page := get(t, s.URL()+"/?c=C0OPS")
	if n := strings.Count(page, `<article class="message`); n != 100 || !strings.Contains(page, "number 4999.") || !strings.Contains(page, "4900 earlier messages") {
		t.Errorf("%d messages on the page", n)
	}
	if landed := get(t, s.URL()+"/archives/C0OPS/p"+strings.ReplaceAll(early, ".", "")); !strings.Contains(landed, "number 1000.") {
		t.Error("a link to an early message does not show it")
	}
}
