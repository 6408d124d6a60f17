package telegram

import (
	"fmt"
	"strings"
	"testing"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// meanings are what a verdict comes to: outcome, fault, and what stands before the slug in the reason.
var meanings = map[verdict]struct {
	outcome delivery.Outcome
	fault   delivery.Fault
	reason  string
}{
	acct:  {delivery.OutcomeFailed, delivery.FaultAccount, "account:"},
	dest:  {delivery.OutcomeFailed, delivery.FaultDestination, "destination:"},
	payl:  {delivery.OutcomeFailed, delivery.FaultPayload, "payload:"},
	gone:  {delivery.OutcomeFailed, delivery.FaultGone, "telegram:"},
	moved: {delivery.OutcomeFailed, delivery.FaultMoved, "destination:"},
	later: {delivery.OutcomeFailed, delivery.FaultTransient, "telegram:"},
	wait:  {delivery.OutcomeFailed, delivery.FaultThrottled, ""},
	doubt: {delivery.OutcomeUnknown, "", "telegram:"},
	same:  {delivery.OutcomeSent, "", ""},
}

// Every row of the table, sent over the wire as the answer to each operation.
func TestEveryRow(t *testing.T) {
	t.Parallel()
	for _, r := range rows {
		t.Run(fmt.Sprint(r.code, " ", r.prefix), func(t *testing.T) {
			t.Parallel()
			head := map[int]string{400: "Bad Request: ", 403: "Forbidden: ", 401: "Unauthorized: ", 409: "Conflict: ", 500: "Internal Server Error: "}[r.code]
			parameters := ""
			switch r.create {
			case moved:
				parameters = `,"parameters":{"migrate_to_chat_id":-1009}`
			case wait:
				parameters = `,"parameters":{"retry_after":26}`
			}
			body := fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%q%s}`, r.code, head+strings.ToUpper(r.prefix)+" and so on", parameters)
			base, got := serve(t, r.code, map[string]string{"Location": "https://core.telegram.org/bots"}, body)
			p := newProvider(t, config.Notifier{APIURL: base})
			for _, op := range []delivery.Operation{delivery.OpCreate, delivery.OpEdit, delivery.OpReply, lookUp} {
				var res delivery.Result
				if op == lookUp {
					_, res = p.look(t.Context(), "getChat", tgbotapi.Params{"chat_id": "@ops"})
				} else {
					res = p.Do(t.Context(), call(op))
				}
				v := r.on(op)
				want := meanings[v]
				if want.outcome != delivery.OutcomeSent {
					want.reason += r.slug
				}
				if res.Outcome != want.outcome || res.Fault != want.fault || res.Reason != want.reason || res.Evidence != delivery.Answered || res.Unlisted {
					t.Errorf("%s: %+v", op, res)
				}
				if v != wait && res.Code != r.slug {
					t.Errorf("%s: code %q", op, res.Code)
				}
				if refused := v == payl; (res.Refused != "") != (refused && r.refused != "") || refused && res.Refused != r.refused {
					t.Errorf("%s: refused %q", op, res.Refused)
				}
				if v == moved != (res.Fault == delivery.FaultMoved && res.MovedTo == "-1009") {
					t.Errorf("%s: moved to %q", op, res.MovedTo)
				}
				if v == wait && res.RetryAfter.Seconds() != 26 {
					t.Errorf("%s: retry after %s", op, res.RetryAfter)
				}
				if v == same && op == delivery.OpEdit && res.Reference != made {
					t.Errorf("%s: reference %+v", op, res.Reference)
				}
				if strings.ContainsAny(res.Sentence, "{}") || v != same && v != wait && res.Sentence == "" {
					t.Errorf("%s: sentence %q", op, res.Sentence)
				}
				if res.Outcome != delivery.OutcomeSent && v != wait && res.Error == "" {
					t.Errorf("%s: no error for the log", op)
				}
			}
			if len(got()) != 4 {
				t.Errorf("%d requests for 4 calls", len(got()))
			}
		})
	}
}

// A row that another one hides would never be used.
func TestEveryRowCanBeReached(t *testing.T) {
	t.Parallel()
	for i, r := range rows {
		got, listed := find(r.code, r.prefix)
		if !listed || got != r {
			t.Errorf("row %d, %d %q, is hidden by %q", i, r.code, r.prefix, got.prefix)
		}
		if r.prefix != strings.ToLower(r.prefix) || describe(r.prefix) != r.prefix || r.slug == "" {
			t.Errorf("row %d, %d %q, cannot match", i, r.code, r.prefix)
		}
	}
}

func TestCodesThatNoRowKnows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code    int
		outcome delivery.Outcome
		fault   delivery.Fault
		reason  string
	}{
		{400, delivery.OutcomeFailed, delivery.FaultPayload, "telegram:400"},
		{402, delivery.OutcomeFailed, delivery.FaultPayload, "telegram:402"},
		{403, delivery.OutcomeFailed, delivery.FaultDestination, "destination:forbidden"},
		{408, delivery.OutcomeUnknown, "", "telegram:408"},
		{420, delivery.OutcomeFailed, delivery.FaultPayload, "telegram:420"},
		{501, delivery.OutcomeUnknown, "", "telegram:501"},
		{599, delivery.OutcomeUnknown, "", "telegram:599"},
	} {
		base, _ := serve(t, c.code, nil, fmt.Sprintf(`{"ok":false,"error_code":%d,"description":"Bad Request: brand new words"}`, c.code))
		for _, op := range []delivery.Operation{delivery.OpCreate, delivery.OpEdit, delivery.OpReply} {
			res := newProvider(t, config.Notifier{APIURL: base}).Do(t.Context(), call(op))
			if res.Outcome != c.outcome || res.Fault != c.fault || res.Reason != c.reason || !res.Unlisted || res.Code == "" || res.Sentence == "" {
				t.Errorf("%d, %s: %+v", c.code, op, res)
			}
		}
	}
}
