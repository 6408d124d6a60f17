package slack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// answer is what is read of a Web API answer, field by field: one field of an odd type must not take the others with
// it, for the message behind it may have been posted.
type answer struct {
	json     bool // it is a JSON object with an "ok" that is true or false
	ok       bool
	code     string
	needed   string
	channel  string
	ts       string
	threadTS string // message.thread_ts
	message  bool   // a message object is there
}

// codeForm is what Slack's codes look like. A webhook's answer is nothing but a code.
var codeForm = regexp.MustCompile(`^[a-z][a-z0-9_]{1,80}$`)

func parse(body []byte) answer {
	var a answer
	var top map[string]json.RawMessage
	if json.Unmarshal(body, &top) != nil || top == nil {
		return a
	}
	a.json = bytes.Equal(top["ok"], []byte("true")) || bytes.Equal(top["ok"], []byte("false"))
	a.ok = bytes.Equal(top["ok"], []byte("true"))
	a.needed = text(top["needed"])
	if a.code = text(top["error"]); !codeForm.MatchString(a.code) {
		a.code = "" // a sentence or a page is no code, and reasons are counted
	}
	a.channel, a.ts = text(top["channel"]), text(top["ts"])
	var m map[string]json.RawMessage
	if json.Unmarshal(top["message"], &m) == nil && m != nil {
		a.message, a.threadTS = true, text(m["thread_ts"])
	}
	return a
}

func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// judge says what a Web API call came to.
func judge(rec wire.Record, c provider.Call) delivery.Result {
	res, settled := rec.Judge()
	if settled {
		return res
	}
	if !rec.Whole() {
		return rec.BrokenOff()
	}
	a := parse(rec.Body)
	place := c.Address
	if place == "" {
		place = c.Reference.Channel
	}
	switch {
	case !a.json && rec.Status >= 400:
		return refusedByEdge(rec, res)
	case !a.json:
		return rec.Doubt("unreadable_answer", fmt.Sprintf("%s answered %d with something that is not Slack's JSON", rec.Host, rec.Status))
	case a.ok && rec.Status >= 400:
		return rec.Doubt("ok_with_"+strconv.Itoa(rec.Status), fmt.Sprintf("Slack answered ok with status %d", rec.Status))
	case a.ok:
		return accepted(rec, res, a, c)
	case a.code == "" && rec.Status < 400:
		return rec.Doubt("no_code", "Slack answered that it is not ok, without saying why")
	case a.code == "":
		return refusedByEdge(rec, res)
	}
	if r, ok := lookUp(a.code, codes); ok {
		res = r.apply(res, a.code, place, a.needed)
		switch {
		case r.verdict == throttled:
			res.RetryAfter = wire.RetryAfter(rec.Header, time.Now())
		case r.verdict == same:
			res.Reference = c.Reference
		case r.verdict == gone && c.Operation == delivery.OpCreate:
			res.Fault = delivery.FaultPayload // a create stands under nothing that could be gone
		}
		return rec.Clean(res)
	}
	if rec.Status >= 400 {
		return rec.Clean(row{verdict: payload, sentence: "Slack refused the message with a code that tocsin does not know: " + a.code}.
			unlisted(res, a.code))
	}
	res = rec.Doubt(a.code, "Slack answered "+a.code+", a code that tocsin does not know")
	res.Unlisted = true
	return res
}

// unlisted applies a row to a code that no table has; the reason keeps the provider's name, since
// nobody knows what kind of refusal it is.
func (r row) unlisted(res delivery.Result, code string) delivery.Result {
	res = r.apply(res, code, "", "")
	res.Reason, res.Unlisted = "slack:"+code, true
	return res
}

// accepted is an answer with ok. It is sent only with what is needed to find the message again.
func accepted(rec wire.Record, res delivery.Result, a answer, c provider.Call) delivery.Result {
	ref := delivery.Reference{Channel: a.channel, TS: a.ts, Permalink: c.Reference.Permalink}
	switch {
	case c.Operation == delivery.OpEdit:
		ref = c.Reference // an edit makes nothing
	case ref.Channel == "" || ref.TS == "":
		return rec.Doubt("no_reference", "Slack answered ok without saying which message it made")
	default:
		ref.Permalink = ""
	}
	res.Outcome, res.Reference = delivery.OutcomeSent, ref
	if c.Operation == delivery.OpReply && a.message && a.threadTS != c.Reference.TS {
		// Slack posts the reply in the channel when the parent was deleted. It was sent, though not where it belongs.
		res.Code = "unthreaded"
		res.Sentence = "the thread's first message is gone: Slack showed the reply in the channel instead"
	}
	return rec.Clean(res)
}

// refusedByEdge is a 4xx that is not in Slack's own form: something in front refused it, or the URL leads elsewhere.
// It is not laid to the account, even where the status is 401 or 403: a filter that dislikes one message must not stop
// all the others.
func refusedByEdge(rec wire.Record, res delivery.Result) delivery.Result {
	code := "http_" + strconv.Itoa(rec.Status)
	if rec.Status == http.StatusRequestTimeout {
		return rec.Doubt(code, rec.Host+" answered 408, which does not say whether it took the message")
	}
	r := row{destination, "what answers is not Slack: " + checkURL}
	res = r.apply(res, code, "", "")
	res.Error = fmt.Sprintf("%s answered %d, not in Slack's form", rec.Host, rec.Status)
	return rec.Clean(res)
}
