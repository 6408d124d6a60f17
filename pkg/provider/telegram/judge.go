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
	_ = json.Unmarshal(result["message_id"], &a.messageID)
	_ = json.Unmarshal(result["chat"], &chat)
	_ = json.Unmarshal(chat["id"], &a.chatID)
	return a
}

// judge says what a send or an edit came to.
func judge(rec wire.Record, c provider.Call) delivery.Result {
	if rec.Status/100 == 3 {
		// A token that is no token at all is sent to Telegram's home page.
		if u, err := url.Parse(rec.Header.Get("Location")); err == nil && u.Hostname() == "core.telegram.org" {
			res, _ := rec.Judge()
			res = row{slug: "malformed_token", verdict: account, sentence: newToken}.apply(res, "")
			res.Error = "Telegram answered with a redirect to its home page: the token is malformed"
			return rec.Clean(res)
		}
	}
	a := answer{}
	if rec.Whole() {
		a = parse(rec.Body)
	}
	res, settled := rec.Judge()
	if settled {
		if res.Fault == delivery.FaultThrottled {
			res.RetryAfter = max(res.RetryAfter, a.retryAfter)
		}
		return res
	}
	if !rec.Whole() {
		return rec.BrokenOff()
	}
	place := c.Address
	if place == "" {
		place = "chat " + strconv.FormatInt(c.Reference.ChatID, 10)
	}
	switch {
	case !a.json && rec.Status >= 400:
		return refusedByEdge(rec, res)
	case !a.json:
		return rec.Doubt("unreadable_answer", fmt.Sprintf("%s answered %d with something that is not Telegram's JSON", rec.Host, rec.Status))
	case a.ok && rec.Status >= 400:
		return rec.Doubt("ok_with_"+strconv.Itoa(rec.Status), fmt.Sprintf("Telegram answered ok with status %d", rec.Status))
	case a.ok:
		return accepted(rec, res, a, c)
	}
	code := a.code
	if code == 0 && rec.Status >= 400 {
		code = rec.Status
	}
	said := fmt.Sprintf("Telegram answered %d: %s", code, a.original)
	switch {
	case code == http.StatusTooManyRequests:
		res.Outcome, res.Fault, res.Reason = delivery.OutcomeFailed, delivery.FaultThrottled, "rate_limited"
		res.RetryAfter, res.Error = max(wire.RetryAfter(rec.Header, time.Now()), a.retryAfter), said
		return rec.Clean(res)
	case code < 400 || code >= 500 || code == http.StatusRequestTimeout:
		return rec.Doubt(strconv.Itoa(code), said)
	}
	r, ok := lookUp(code, a.description)
	switch {
	case !ok:
		r = row{slug: strconv.Itoa(code), verdict: payload, sentence: "Telegram refused the message with words that tocsin does not know: " + a.original}
	case r.verdict == same && c.Operation != delivery.OpEdit:
		// "Not modified" for a message that was to be made is no success: nothing was made.
		r.verdict, r.sentence = payload, ourContent
	case r.verdict == gone && c.Operation == delivery.OpCreate:
		r.verdict = payload // a create stands under nothing that could be gone
	}
	res = r.apply(res, place)
	switch {
	case !ok:
		res.Reason, res.Unlisted = "telegram:"+r.slug, true
	case r.verdict == same:
		res.Reference = c.Reference
		return rec.Clean(res)
	case a.migrateTo != 0:
		res.Sentence = fmt.Sprintf("the group became a supergroup: set chat_id: %d in the file, then send again", a.migrateTo)
	}
	res.Error = said
	return rec.Clean(res)
}

// accepted is an answer with ok. It is sent only with what is needed to find the message again.
func accepted(rec wire.Record, res delivery.Result, a answer, c provider.Call) delivery.Result {
	if c.Operation == delivery.OpEdit {
		res.Outcome, res.Reference = delivery.OutcomeSent, c.Reference // an edit makes nothing
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
	r := row{slug: slug, verdict: destination, sentence: "what answers is not Telegram: check api_url of the notifier in the file"}
	if rec.Status == http.StatusRequestEntityTooLarge {
		r.verdict, r.sentence = payload, ourContent
	}
	res = r.apply(res, "")
	res.Error = text
	return rec.Clean(res)
}
