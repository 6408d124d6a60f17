package providertest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// statuses walks every status there is, with a body that says yes and with one from a machine in front.
func (s walk) statuses(t *testing.T) {
	t.Parallel()
	const page = "<html><head><title>error</title></head></html>"
	for kind, body := range map[string]string{"yes": s.Accepted, "page": page} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, nil)
			for status := 100; status < 600; status++ {
				p.answers(func(c net.Conn, _ request) { write(c, status, "Location: /elsewhere\r\n", body) })
				res := s.do(t, p.url)
				if n := p.requests.Swap(0); n != 1 {
					t.Errorf("%d: %d requests", status, n)
				}
				s.checkStatus(t, status, kind == "yes", res)
				if t.Failed() {
					t.Fatalf("%d, %s: %+v", status, kind, res)
				}
			}
		})
	}
}

func (s walk) checkStatus(t *testing.T, status int, yes bool, res delivery.Result) {
	t.Helper()
	want := []delivery.Outcome{delivery.OutcomeUnknown}
	switch {
	case status < 200, status >= 500:
	case status == http.StatusNoContent && !s.AnyBody:
		// its body is not read, so there is no yes
	case status < 300 && (yes || s.AnyBody):
		want = []delivery.Outcome{delivery.OutcomeSent}
	case status < 300:
	case status == http.StatusTooManyRequests:
		want = []delivery.Outcome{delivery.OutcomeFailed}
		if res.Fault != delivery.FaultThrottled {
			t.Errorf("%d: fault %q", status, res.Fault)
		}
	case status < 400:
		want = []delivery.Outcome{delivery.OutcomeFailed}
		if res.Fault != delivery.FaultDestination && res.Fault != delivery.FaultAccount {
			t.Errorf("%d: fault %q", status, res.Fault)
		}
	case status == http.StatusRequestTimeout, yes && !s.AnyBody:
		// a refusal whose body says yes contradicts itself; a 408 is a refusal where the provider says so
		want = append(want, delivery.OutcomeFailed)
	default:
		want = []delivery.Outcome{delivery.OutcomeFailed}
	}
	for _, w := range want {
		if res.Outcome == w {
			return
		}
	}
	t.Errorf("%d: outcome %s, want %s", status, res.Outcome, want)
}

// bodies are answers with status 200 that are not what was agreed.
func (s walk) bodies(t *testing.T) {
	t.Parallel()
	t.Run("content types", func(t *testing.T) {
		t.Parallel()
		p := newPeer(t, nil)
		for _, kind := range []string{"", "image/png", "text/html; charset=utf-8", "application/json; charset=shift_jis", "nonsense;;;=", "application/octet-stream"} {
			header := ""
			if kind != "" {
				header = "Content-Type: " + kind + "\r\n"
			}
			p.answers(func(c net.Conn, _ request) { write(c, 200, header, s.Accepted) })
			if res := s.do(t, p.url); res.Outcome != delivery.OutcomeSent {
				t.Errorf("%q: %+v", kind, res) // the body says it all
			}
		}
	})
	if s.AnyBody {
		return
	}
	t.Run("not as agreed", func(t *testing.T) {
		t.Parallel()
		p := newPeer(t, nil)
		for name, body := range map[string]string{
			"empty": "", "null": "null", "list": "[]", "object": "{}", "number": "200", "page": "<html>", "text": "fine",
			"not ok": `{"ok":false}`, "ok as text": `{"ok":"true"}`, "ok alone": `{"ok":true}`, "ok with result true": `{"ok":true,"result":true}`,
			"two objects": s.Accepted + s.Accepted, "binary": "\x00\xff\xfe{\"ok\":true}", "unlisted": s.Unlisted,
			"half": s.Accepted[:len(s.Accepted)/2], "nested": strings.Repeat("[", 100_000),
		} {
			p.answers(func(c net.Conn, _ request) { write(c, 200, "Content-Type: application/json\r\n", body) })
			res := s.do(t, p.url)
			if bare := s.op == delivery.OpEdit && strings.HasPrefix(name, "ok "); bare && res.Outcome == delivery.OutcomeSent {
				continue // an edit's answer need not name what everybody knows
			}
			if res.Outcome != delivery.OutcomeUnknown {
				t.Errorf("%s: %+v", name, res)
			}
		}
	})
	t.Run("unlisted refusal", func(t *testing.T) {
		t.Parallel()
		p := newPeer(t, func(c net.Conn, _ request) { write(c, 400, "", s.Unlisted) })
		if res := s.do(t, p.url); res.Outcome != delivery.OutcomeFailed || res.Code == "" || !res.Unlisted {
			t.Errorf("%+v", res)
		}
	})
}

// drifted has each field of a yes replaced by every other kind of JSON, one at a time: the message behind it was made, so
// the answer may be doubted, and never taken for a refusal.
func (s walk) drifted(t *testing.T) {
	t.Parallel()
	var whole map[string]any
	d := json.NewDecoder(strings.NewReader(s.Accepted))
	d.UseNumber()
	if d.Decode(&whole) != nil {
		return // it has no fields
	}
	p := newPeer(t, nil)
	tried := 0
	try := func(name string) {
		tried++
		body, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		p.answers(func(c net.Conn, _ request) { write(c, 200, "Content-Type: application/json\r\n", string(body)) })
		switch res := s.do(t, p.url); {
		case res.Outcome == delivery.OutcomeFailed:
			t.Errorf("%s: a yes was taken for a refusal: %s: %+v", name, body, res)
		case res.Outcome == delivery.OutcomeSent && res.Reference.IsZero() != s.made().IsZero():
			t.Errorf("%s: sent without what is needed to find it: %s: %+v", name, body, res)
		}
	}
	var visit func(path string, fields map[string]any)
	visit = func(path string, fields map[string]any) {
		for name, old := range fields {
			for _, odd := range []string{
				"null", "true", "false", "0", "-1", "1.5", "1e400", "99999999999999999999", `""`, `"x"`, `"12"`, "[]", "[[1]]", "{}", `{"a":{"b":1}}`,
			} {
				fields[name] = json.RawMessage(odd)
				try(path + name + " = " + odd)
			}
			delete(fields, name)
			try(path + name + " is missing")
			fields[name] = old
			if inner, ok := old.(map[string]any); ok {
				visit(path+name+".", inner)
			}
		}
	}
	visit("", whole)
	whole["brand_new"] = map[string]any{"field": []int{1}}
	try("a new field")
	if tried < 20 {
		t.Errorf("only %d answers", tried)
	}
}

// rests are the forms of Retry-After, of which some are none. What comes of them is bounded.
func (s walk) rests(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	p := newPeer(t, nil)
	for _, c := range []struct {
		name, header string
		most         time.Duration // least: a second
		exactly      time.Duration
	}{
		{"missing", "", time.Minute, 0},
		{"seconds", "Retry-After: 26\r\n", 0, 26 * time.Second},
		{"with blanks", "Retry-After:   26  \r\n", 0, 26 * time.Second},
		{"date", "Date: " + date(0) + "\r\nRetry-After: " + date(40*time.Second) + "\r\n", 0, 40 * time.Second},
		{"date, by a clock that is off", "Date: " + date(-5*time.Hour) + "\r\nRetry-After: " + date(-5*time.Hour+40*time.Second) + "\r\n", 0, 40 * time.Second},
		{"past", "Retry-After: " + date(-time.Hour) + "\r\n", time.Minute, 0},
		{"far", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n", 24 * time.Hour, 0},
		{"zero", "Retry-After: 0\r\n", time.Minute, 0},
		{"negative", "Retry-After: -26\r\n", time.Minute, 0},
		{"junk", "Retry-After: soon\r\n", time.Minute, 0},
		{"fraction", "Retry-After: 1.5\r\n", time.Minute, 0},
		{"empty", "Retry-After:\r\n", time.Minute, 0},
		{"huge", "Retry-After: 2000000000\r\n", 24 * time.Hour, 0},
		{"larger than any number", "Retry-After: 99999999999999999999999999\r\n", 24 * time.Hour, 0},
		{"two", "Retry-After: 26\r\nRetry-After: 3\r\n", time.Minute, 0},
	} {
		p.answers(func(c2 net.Conn, _ request) { write(c2, http.StatusTooManyRequests, c.header, "{}") })
		res := s.do(t, p.url)
		if res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultThrottled {
			t.Errorf("%s: %+v", c.name, res)
		}
		if got := res.RetryAfter; c.exactly > 0 && got != c.exactly || c.exactly == 0 && (got < time.Second || got > c.most) {
			t.Errorf("%s: a rest of %s", c.name, got)
		}
		p.answers(func(c2 net.Conn, _ request) { write(c2, http.StatusServiceUnavailable, c.header, "{}") })
		if res := s.do(t, p.url); res.Outcome != delivery.OutcomeUnknown {
			t.Errorf("%s, 503: %+v", c.name, res) // check bounds the rest, where the provider takes one
		}
	}
}

// rows are the provider's tables, line by line.
func (s walk) rows(t *testing.T) {
	t.Parallel()
	p := newPeer(t, nil)
	for _, r := range s.Rows {
		if r.Operation != "" && r.Operation != s.op {
			continue
		}
		status := r.Status
		if status == 0 {
			status = http.StatusOK
		}
		var header strings.Builder
		for k, v := range r.Header {
			fmt.Fprintf(&header, "%s: %s\r\n", k, v)
		}
		p.answers(func(c net.Conn, _ request) { write(c, status, header.String(), r.Body) })
		res := s.do(t, p.url)
		if res.Outcome != r.Outcome || res.Fault != r.Fault || r.Reason != "" && res.Reason != r.Reason || res.Unlisted != r.Unlisted {
			t.Errorf("%s: %s, %q, %q, unlisted %v; want %s, %q, %q, %v", r.Name, res.Outcome, res.Fault, res.Reason, res.Unlisted, r.Outcome, r.Fault, r.Reason, r.Unlisted)
		}
		if res.HTTPStatus != status || res.Evidence != delivery.Answered {
			t.Errorf("%s: %s, status %d, want %d", r.Name, res.Evidence, res.HTTPStatus, status)
		}
		switch res.Fault {
		case delivery.FaultAccount, delivery.FaultDestination, delivery.FaultPayload, delivery.FaultDenied:
			if res.Sentence == "" {
				t.Errorf("%s: nobody is told what to do", r.Name)
			}
		}
		if n := p.requests.Swap(0); n != 1 {
			t.Errorf("%s: %d requests", r.Name, n)
		}
	}
}
