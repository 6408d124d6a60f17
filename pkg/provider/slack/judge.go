package slack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
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
	threadTS string   // message.thread_ts
	message  bool     // a message object is there
	messages []string // response_metadata.messages: what is wrong with the content, and where
	top      map[string]json.RawMessage
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
	a.top = top
	a.channel, a.ts = text(top["channel"]), text(top["ts"])
	var meta map[string]json.RawMessage
	if json.Unmarshal(top["response_metadata"], &meta) == nil {
		_ = json.Unmarshal(meta["messages"], &a.messages) // nothing but a hint hangs on them
	}
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

// judge says what a Web API call came to. ok means that Slack says ok, and that nothing else is settled.
func judge(rec wire.Record, op operation, place string) (res delivery.Result, a answer, ok bool) {
	res, settled := rec.Judge()
	if settled {
		return res, a, false
	}
	if !rec.Whole() {
		return rec.BrokenOff(), a, false
	}
	a = parse(rec.Body)
	switch {
	case !a.json && rec.Status >= 400:
		return refusedByEdge(rec, res, op), a, false
	case !a.json:
		return rec.Doubt("unreadable_answer", fmt.Sprintf("%s answered %d with something that is not Slack's JSON", rec.Host, rec.Status)), a, false
	case a.ok && rec.Status >= 400:
		return rec.Doubt("ok_with_"+strconv.Itoa(rec.Status), fmt.Sprintf("Slack answered ok with status %d", rec.Status)), a, false
	case a.ok:
		return res, a, true
	case a.code == "" && rec.Status < 400:
		return rec.Doubt("no_code", "Slack answered that it is not ok, without saying why"), a, false
	case a.code == "":
		return refusedByEdge(rec, res, op), a, false
	}
	r, listed := classify(op, a.code)
	switch {
	case listed:
		res = r.apply(res, op, a.code, place, a.needed)
		if r.verdict == throttled {
			res.RetryAfter = wire.RetryAfter(rec.Header, time.Now())
		}
	case rec.Status >= 400:
		res = unlisted(res, op, a.code)
	default:
		res = rec.Doubt(a.code, "Slack answered "+a.code+", a code that tocsin does not know")
		res.Unlisted = true
	}
	return rec.Clean(res), a, false
}

// unlisted is a refusal by a code that no table has; the reason keeps the provider's name, since nobody knows what kind
// of refusal it is.
func unlisted(res delivery.Result, op operation, code string) delivery.Result {
	res = row{verdict: payload, sentence: "Slack refused the message with a code that tocsin does not know: " + code}.apply(res, op, code, "", "")
	res.Reason, res.Unlisted = "slack:"+code, true
	return res
}

// accepted is an answer with ok. It is sent only with what is needed to find the message again.
func accepted(rec wire.Record, res delivery.Result, a answer, op operation, of delivery.Reference) delivery.Result {
	ref := delivery.Reference{Channel: a.channel, TS: a.ts}
	switch {
	case op == opEdit:
		ref = of // an edit makes nothing
	case ref.Channel == "" || ref.TS == "":
		return rec.Doubt("no_reference", "Slack answered ok without saying which message it made")
	}
	res.Outcome, res.Reference = delivery.OutcomeSent, ref
	if op == opReply && a.message && a.threadTS != of.TS {
		// Slack posts the reply in the channel when the parent was deleted. It was sent, though not where it belongs.
		res.Code = "unthreaded"
		res.Sentence = "the thread's first message is gone: Slack showed the reply in the channel instead"
	}
	return rec.Clean(res)
}

// refusedByEdge is a 4xx that is not in Slack's own form: something in front refused it, or the URL leads elsewhere.
// It is not laid to the account, even where the status is 401 or 403: a filter that dislikes one message must not stop
// all the others.
func refusedByEdge(rec wire.Record, res delivery.Result, op operation) delivery.Result {
	code := "http_" + strconv.Itoa(rec.Status)
	if rec.Status == http.StatusRequestTimeout {
		return rec.Doubt(code, rec.Host+" answered 408, which does not say whether it took the message")
	}
	r := row{verdict: destination, sentence: "what answers is not Slack: " + checkURL}
	res = r.apply(res, op, code, "", "")
	res.Error = fmt.Sprintf("%s answered %d, not in Slack's form", rec.Host, rec.Status)
	return rec.Clean(res)
}

// pointer is the place in the content that one of response_metadata.messages complains about.
var pointer = regexp.MustCompile(`\[json-pointer:(/[^\]]*)\]`)

// onlyAt says that all complaints are about what lies at place or below it, and that there is one.
func onlyAt(messages []string, place string) bool {
	for _, m := range messages {
		at := pointer.FindStringSubmatch(m)
		if len(at) < 2 || at[1] != place && !strings.HasPrefix(at[1], place+"/") {
			return false
		}
	}
	return len(messages) > 0 && place != ""
}
