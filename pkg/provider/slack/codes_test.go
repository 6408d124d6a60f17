package slack

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

var update = flag.Bool("update", false, "write the golden files anew")

// listed is every code that has a row.
func listed() []string {
	all := maps.Clone(codes)
	for _, t := range differing {
		maps.Copy(all, t)
	}
	return append(slices.Sorted(maps.Keys(all)), "slack_connect_file_upload_sharing_blocked")
}

func meaning(res delivery.Result) string {
	s := string(res.Outcome)
	if res.Fault != delivery.FaultNone {
		s = string(res.Fault)
	}
	if res.Refused != "" {
		s += "(" + string(res.Refused) + ")"
	}
	return s
}

// What every code means to every operation, in one file that is read as a table: a change of a meaning is a change of it.
func TestMeaningOfEveryCode(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, code := range listed() {
		by := map[string][]string{}
		for _, op := range operations {
			r, ok := classify(op, code)
			if !ok { // a code of webhooks alone
				continue
			}
			res := r.apply(delivery.Result{Evidence: delivery.Answered}, op, code, "C0123", "")
			m := meaning(res)
			by[m] = append(by[m], string(op))
			if res != res.Proven() {
				t.Errorf("%s of %s: %+v proves less than it says", code, op, res)
			}
			if strings.ContainsAny(res.Sentence, "{}") {
				t.Errorf("%s of %s: sentence %q", code, op, res.Sentence)
			}
			needsHand := res.Fault == delivery.FaultAccount || res.Fault == delivery.FaultDestination || res.Fault == delivery.FaultPayload
			if needsHand && res.Sentence == "" {
				t.Errorf("%s of %s: nobody is told what to do", code, op)
			}
			if r.tested && r.verdict != account && op != opHook {
				t.Errorf("%s of %s: auth.test shows nothing about it", code, op)
			}
			if r.part != "" && res.Fault != delivery.FaultPayload {
				t.Errorf("%s of %s: a part is refused and the fault is %s", code, op, res.Fault)
			}
			if op == opHook && (res.Fault == delivery.FaultAccount || res.Fault == delivery.FaultGone || res.Outcome == delivery.OutcomeSent) {
				t.Errorf("%s: a webhook has neither a token nor anything to answer: %s", code, m)
			}
		}
		fmt.Fprintf(&b, "%s\n", code)
		for _, m := range slices.Sorted(maps.Keys(by)) {
			fmt.Fprintf(&b, "\t%s: %s\n", m, strings.Join(by[m], " "))
		}
	}
	const file = "testdata/codes.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-want +got; go test ./pkg/provider/slack -run TestMeaning -update writes it anew):\n%s", file, diff)
	}
}

// What differs by operation is the point of the table; the lines that matter most are said here in words.
func TestOneCodeMeansDifferentThings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, code string
		op         operation
		outcome    delivery.Outcome
		fault      delivery.Fault
		refused    delivery.Part
	}{
		{"a post that may have succeeded in part", "internal_error", opPost, delivery.OutcomeUnknown, "", ""},
		{"an edit that may have succeeded is repeated", "update_failed", opEdit, delivery.OutcomeUnknown, "", ""},
		{"an edit of a deleted message", "message_not_found", opEdit, delivery.OutcomeFailed, delivery.FaultGone, ""},
		{"a reply to a deleted message", "message_not_found", opReply, delivery.OutcomeFailed, delivery.FaultGone, ""},
		{"deleting what is deleted", "message_not_found", opDelete, delivery.OutcomeSent, "", ""},
		{"a reaction to a deleted message", "message_not_found", opReact, delivery.OutcomeFailed, delivery.FaultPayload, ""},
		{"a reaction that is there", "already_reacted", opReact, delivery.OutcomeSent, "", ""},
		{"taking away a reaction that is not there", "no_reaction", opReact, delivery.OutcomeSent, "", ""},
		{"a conversation that is open", "already_open", opOpen, delivery.OutcomeSent, "", ""},
		{"a message that Slack thinks it has seen, and cannot find", "duplicate_message_not_found", opPost, delivery.OutcomeUnknown, "", ""},
		{"a channel without threads", "restricted_action_non_threadable_channel", opReply, delivery.OutcomeFailed, delivery.FaultGone, ""},
		{"a locked thread", "restricted_action_thread_locked", opReply, delivery.OutcomeFailed, delivery.FaultGone, ""},
		{"a message that takes no replies", "cannot_reply_to_message", opReply, delivery.OutcomeFailed, delivery.FaultGone, ""},
		{"a thread that is not there", "thread_not_found", opRead, delivery.OutcomeFailed, delivery.FaultGone, ""},
		{"metadata that only an app may send", "metadata_must_be_sent_from_app", opPost, delivery.OutcomeFailed, delivery.FaultPayload, delivery.PartMetadata},
		{"metadata of the wrong form", "invalid_metadata_schema", opReply, delivery.OutcomeFailed, delivery.FaultPayload, delivery.PartMetadata},
		{"a person of another organisation", "invalid_user_combination", opOpen, delivery.OutcomeFailed, delivery.FaultDestination, ""},
		{"an address that nobody has", "users_not_found", opPerson, delivery.OutcomeFailed, delivery.FaultDestination, ""},
		{"a webhook's user", "user_not_found", opHook, delivery.OutcomeFailed, delivery.FaultPayload, ""},
		{"a person", "user_not_found", opPost, delivery.OutcomeFailed, delivery.FaultDestination, ""},
		{"a webhook that was cut off", "invalid_token", opHook, delivery.OutcomeFailed, delivery.FaultDestination, ""},
		{"a token that was revoked", "token_revoked", opAuth, delivery.OutcomeFailed, delivery.FaultAccount, ""},
	} {
		r, ok := classify(c.op, c.code)
		res := r.apply(delivery.Result{}, c.op, c.code, "", "")
		if !ok || res.Outcome != c.outcome || res.Fault != c.fault || res.Refused != c.refused {
			t.Errorf("%s: %+v", c.name, res)
		}
	}
}
