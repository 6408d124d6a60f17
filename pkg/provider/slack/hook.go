package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	slackgo "github.com/slack-go/slack"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// hookBody is the JSON body of an incoming webhook.
type hookBody struct {
	Text        string               `json:"text"`
	Markup      *bool                `json:"mrkdwn,omitempty"`
	Blocks      []slackgo.Block      `json:"blocks,omitempty"`
	Attachments []slackgo.Attachment `json:"attachments,omitempty"`
}

// doHook posts to the incoming webhook. It can only make messages: no reference comes back, so nothing can be edited
// or answered.
func (p *Provider) doHook(ctx context.Context, c provider.Call) delivery.Result {
	if c.Operation != delivery.OpCreate {
		return notCalled(delivery.FaultPayload, "payload:operation", "a Slack webhook can neither edit nor reply: use a bot token for that")
	}
	m := c.Message
	m.Buttons = nil // a webhook's app need not be ours: a press would reach nobody
	form := c.Form
	form.NoMetadata = true // a webhook takes none, and nothing could be found by the mark
	r := render(m, form, "")
	body := hookBody{Text: r.text}
	switch {
	case form.Plain:
		body.Markup = new(bool) // false
	case r.colour == "":
		body.Blocks = r.blocks
	default:
		body.Attachments = []slackgo.Attachment{r.attachment()}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return notCalled(delivery.FaultPayload, "payload:not_built", "the message could not be written as JSON")
	}
	u, err := url.Parse(p.hook)
	if err != nil {
		return notCalled(delivery.FaultDestination, "destination:url", "webhook_url in the file is not a URL")
	}
	return judgeHook(p.client.Do(jsonPost(ctx, u, raw)), u.Hostname() == "hooks.slack.com" && strings.HasPrefix(u.Path, "/services/"))
}

// jsonPost builds the request by hand: http.NewRequest would quote the URL, a secret, in its error.
func jsonPost(ctx context.Context, u *url.URL, body []byte) *http.Request {
	r := &http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host,
		Header:        http.Header{"Content-Type": {"application/json; charset=utf-8"}, "User-Agent": {"tocsin"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
	return r.WithContext(ctx)
}

// restOf is the rest that the body of a 429 asks for, at most a day.
func restOf(body []byte) time.Duration {
	var asked struct {
		Seconds float64 `json:"retry_after"`
	}
	if json.Unmarshal(body, &asked) != nil || !(asked.Seconds > 0) {
		return 0
	}
	return time.Duration(min(asked.Seconds, 86400) * float64(time.Second))
}

// judgeHook judges by the body first and the status second, since most of the statuses are not documented. Slack's
// own webhooks say "ok"; servers that speak like Slack, and workflow URLs, say anything with a 2xx.
func judgeHook(rec wire.Record, slacks bool) delivery.Result {
	res, settled := rec.Judge()
	if settled {
		if res.Fault == delivery.FaultThrottled && rec.Header.Get("Retry-After") == "" {
			res.RetryAfter = max(res.RetryAfter, restOf(rec.Body)) // webhooks have been seen to say it in the body alone
		}
		return res
	}
	if !rec.Whole() {
		return rec.BrokenOff()
	}
	body := strings.TrimSpace(string(rec.Body))
	code := ""
	if codeForm.MatchString(body) && body != "ok" {
		code = body
	} else if a := parse(rec.Body); a.json && !a.ok {
		code = a.code
	}
	r, listed := classify(opHook, code)
	if listed {
		res = r.apply(res, opHook, code, "", "")
		if r.verdict == throttled {
			res.RetryAfter = wire.RetryAfter(rec.Header, time.Now())
		}
		return rec.Clean(res)
	}
	httpCode := "http_" + strconv.Itoa(rec.Status)
	switch {
	case rec.Status < 300 && (body == "ok" || !slacks) && !strings.Contains(strings.ReplaceAll(body, " ", ""), `"ok":false`):
		res.Outcome = delivery.OutcomeSent
		return res
	case rec.Status < 300:
		res = rec.Doubt("unreadable_answer", fmt.Sprintf("the webhook answered %d without saying ok", rec.Status))
		if code != "" && slacks {
			res.Code, res.Reason, res.Unlisted = code, "slack:"+code, true
		}
		return rec.Clean(res)
	case rec.Status == http.StatusRequestTimeout:
		return rec.Doubt(httpCode, "the webhook answered 408, which does not say whether it took the message")
	case rec.Status == http.StatusBadRequest && slacks, rec.Status == http.StatusRequestEntityTooLarge, rec.Status == http.StatusUnprocessableEntity:
		res = row{verdict: payload, sentence: ourContent}.apply(res, opHook, httpCode, "", "")
	default:
		res = row{verdict: destination, sentence: "check webhook_url of the notifier in the file"}.apply(res, opHook, httpCode, "", "")
	}
	if code != "" && slacks {
		res.Code, res.Reason, res.Unlisted = code, "slack:"+code, true
	}
	res.Error = fmt.Sprintf("the webhook at %s answered %d: %s", rec.Host, rec.Status, message.Fit(message.Line(rec.Answer()), 200, message.CodePoints))
	return rec.Clean(res)
}

// fit keeps a private answer within Slack's limit.
func fit(s string) string { return message.Fit(s, maxText, cost) }
