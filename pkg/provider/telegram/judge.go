package telegram

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// answer is what is read of an answer, field by field: a field of an odd type must not hide that the message was sent.
type answer struct {
	json        bool // a JSON object with an "ok" that is true or false
	ok          bool
	code        int
	description string // as rows match it
	original    string
	retryAfter  time.Duration
	migrateTo   int64
	chatID      int64
	messageID   int
	result      bool // there is a result, and it is not null or false
}

func parse(body []byte) answer {
	var a answer
	var top map[string]json.RawMessage
	if json.Unmarshal(body, &top) != nil || top == nil {
		return a
	}
	a.json = json.Unmarshal(top["ok"], &a.ok) == nil && string(top["ok"]) != "null"
	_ = json.Unmarshal(top["error_code"], &a.code) // a missing or odd field stays zero, here and below
	_ = json.Unmarshal(top["description"], &a.original)
	a.description = describe(a.original)
	var parameters, result, chat map[string]json.RawMessage
	_ = json.Unmarshal(top["parameters"], &parameters)
	var seconds int64
	_ = json.Unmarshal(parameters["retry_after"], &seconds)
	a.retryAfter = min(time.Duration(max(min(seconds, 86400), 0))*time.Second, 24*time.Hour)
	_ = json.Unmarshal(parameters["migrate_to_chat_id"], &a.migrateTo)
	_ = json.Unmarshal(top["result"], &result)
	a.result = len(top["result"]) > 0 && string(top["result"]) != "null" && string(top["result"]) != "false"
	_ = json.Unmarshal(result["message_id"], &a.messageID)
	_ = json.Unmarshal(result["chat"], &chat)
	_ = json.Unmarshal(chat["id"], &a.chatID)
	return a
}

// judge says what a call came to.
func judge(rec wire.Record, op delivery.Operation, c provider.Call) delivery.Result {
	place := c.Address
	if place == "" {
		place = "chat " + strconv.FormatInt(c.Reference.ChatID, 10)
	}
	a := answer{}
	if rec.Whole() {
		a = parse(rec.Body)
	}
	res, settled := rec.Judge()
	if settled {
		return settle(rec, res, op, a, place)
	}
	if !rec.Whole() {
		return rec.BrokenOff()
	}
	switch {
	case !a.json && rec.Status >= 400:
		return refusedByEdge(rec, res)
	case !a.json:
		return rec.Doubt("unreadable_answer", fmt.Sprintf("%s answered %d with something that is not Telegram's JSON", rec.Host, rec.Status))
	case a.ok && rec.Status >= 400:
		return rec.Doubt("ok_with_"+strconv.Itoa(rec.Status), fmt.Sprintf("Telegram answered ok with status %d", rec.Status))
	case a.ok:
		return accepted(rec, res, op, a, c)
	}
	if a.code == 0 && rec.Status >= 400 {
		a.code = rec.Status
	}
	if a.code < 400 {
		// No error of Telegram's is below 400, so this is no answer of its own.
		return rec.Doubt(strconv.Itoa(a.code), said(a))
	}
	res = classify(res, op, a, place)
	switch {
	case res.Outcome == delivery.OutcomeSent:
		res.Reference = c.Reference
		return rec.Clean(res)
	case res.Fault == delivery.FaultThrottled:
		res.RetryAfter = max(wire.RetryAfter(rec.Header, time.Now()), a.retryAfter)
	}
	res.Error = said(a)
	return rec.Clean(res)
}

func said(a answer) string { return fmt.Sprintf("Telegram answered %d: %s", a.code, a.original) }

// settle adds what the answer says to a result that the transport alone has settled; it never changes the outcome.
func settle(rec wire.Record, res delivery.Result, op delivery.Operation, a answer, place string) delivery.Result {
	switch {
	case res.Fault == delivery.FaultThrottled:
		res.RetryAfter = max(res.RetryAfter, a.retryAfter)
	case rec.Status/100 == 3:
		// A token that is no token at all is sent to Telegram's home page.
		if u, err := url.Parse(rec.Header.Get("Location")); err == nil && u.Hostname() == "core.telegram.org" {
			res = classify(res, op, answer{code: http.StatusFound}, place)
			res.Error = "Telegram answered with a redirect to its home page: the token is malformed"
			return rec.Clean(res)
		}
	case rec.Status >= 500:
		if a.json && !a.ok && a.code >= 500 {
			res = classify(res, op, a, place)
			res.Error = said(a)
			res = rec.Clean(res)
		}
		if rec.Header.Get("Retry-After") != "" || a.retryAfter > 0 {
			res.RetryAfter = max(wire.RetryAfter(rec.Header, time.Now()), a.retryAfter)
		}
	}
	return res
}

// accepted is an answer with ok. It is sent only with what is needed to find the message again.
func accepted(rec wire.Record, res delivery.Result, op delivery.Operation, a answer, c provider.Call) delivery.Result {
	switch op {
	case delivery.OpEdit:
		res.Outcome, res.Reference = delivery.OutcomeSent, c.Reference // an edit makes nothing
		return res
	case lookUp:
		res.Outcome = delivery.OutcomeSent
		return res
	}
	if a.chatID == 0 || a.messageID == 0 {
		return rec.Doubt("no_reference", "Telegram answered ok without saying which message it made")
	}
	res.Outcome = delivery.OutcomeSent
	res.Reference = delivery.Reference{ChatID: a.chatID, MessageID: a.messageID}
	return res
}

// refusedByEdge is a 4xx that is not in Telegram's own form: the server in front refused it, or the URL leads elsewhere.
func refusedByEdge(rec wire.Record, res delivery.Result) delivery.Result {
	slug := "http_" + strconv.Itoa(rec.Status)
	text := fmt.Sprintf("%s answered %d, not in Telegram's form", rec.Host, rec.Status)
	if rec.Status == http.StatusRequestTimeout {
		return rec.Doubt(slug, text)
	}
	res.Outcome, res.Code, res.Error = delivery.OutcomeFailed, slug, text
	res.Fault, res.Reason = delivery.FaultDestination, "destination:"+slug
	res.Sentence = "what answers is not Telegram: check api_url of the notifier in the file"
	if rec.Status == http.StatusRequestEntityTooLarge {
		res.Fault, res.Reason, res.Sentence = delivery.FaultPayload, "payload:"+slug, ourContent
	}
	return rec.Clean(res)
}
