package chattest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// chat is the smallest chat: POST /method?channel=c appends to what it holds.
type chat struct {
	*chattest.Core
	held []string
}

func start(t *testing.T, seed uint64) *chat {
	t.Helper()
	c := &chat{Core: chattest.NewCore(nil, seed)}
	c.Start(t, http.HandlerFunc(c.serve))
	return c
}

func (c *chat) serve(w http.ResponseWriter, r *http.Request) {
	if c.ServeTools(w, r, "s3cret") {
		return
	}
	body, _ := io.ReadAll(r.Body)
	c.Serve(w, r, chattest.Exchange{
		Request: chattest.Request{Method: strings.TrimPrefix(r.URL.Path, "/"), Channel: r.URL.Query().Get("channel"), Body: string(body)},
		Act: func(q *chattest.Request) chattest.Reply {
			c.held = append(c.held, q.Body)
			q.Effect, q.Object = chattest.Created, fmt.Sprint(len(c.held))
			return chattest.Reply{Body: []byte(`{"ok":true,"made":` + q.Object + `}`)}
		},
		Refuse: func(f chattest.Fault) chattest.Reply {
			return chattest.Reply{Status: 400, Body: []byte(`{"ok":false,"error":"` + f.Code + `"}`)}
		},
	})
}

func (c *chat) count() (n int) {
	c.Read(func() { n = len(c.held) })
	return n
}

// call is what a client sees of one request: a fresh connection each time, as the providers use.
type call struct {
	status  int
	header  http.Header
	body    string
	err     error // of Do
	readErr error
}

func (c *chat) post(ctx context.Context, method string) call {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL()+"/"+method+"?channel=C1", strings.NewReader("hello"))
	if err != nil {
		return call{err: err}
	}
	resp, err := client.Do(r)
	if err != nil {
		return call{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return call{resp.StatusCode, resp.Header, string(body), nil, err}
}

func TestEachFaultIsWhatItSaysAndTheLedgerKnows(t *testing.T) {
	t.Parallel()
	const truth = `{"ok":true,"made":1}`
	for _, tc := range []struct {
		name     string
		fault    chattest.Fault
		effects  int
		status   int    // that the client sees; 0 = none
		body     string // that the client sees
		header   string // Retry-After
		readFail bool
	}{
		{"none", chattest.Fault{}, 1, 200, truth, "", false},
		{"reset", chattest.Fault{Kind: chattest.Reset}, 0, 0, "", "", false},
		{"reset, happens", chattest.Fault{Kind: chattest.Reset, Happens: true}, 1, 0, "", "", false},
		{"drop", chattest.Fault{Kind: chattest.Drop}, 1, 0, "", "", false},
		{"slow", chattest.Fault{Kind: chattest.Slow, Interval: chattest.Duration(time.Millisecond)}, 1, 200, truth, "", false},
		{"cut", chattest.Fault{Kind: chattest.Cut}, 1, 200, truth[:len(truth)/2], "", true},
		{"limited", chattest.Fault{Kind: chattest.Limited, RetryAfter: "26"}, 0, 400, `{"ok":false,"error":""}`, "26", false},
		{"limited with a date", chattest.Fault{Kind: chattest.Limited, RetryAfter: "Sun, 29 Nov 2026 18:00:00 GMT"}, 0, 400, `{"ok":false,"error":""}`, "Sun, 29 Nov 2026 18:00:00 GMT", false},
		{"limited without header", chattest.Fault{Kind: chattest.Limited, RetryAfter: "-"}, 0, 400, `{"ok":false,"error":""}`, "", false},
		{"5xx", chattest.Fault{Kind: chattest.Error, Status: 502}, 0, 502, "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n</body>\r\n</html>\r\n", "", false},
		{"happens but says 500", chattest.Fault{Kind: chattest.Error, Happens: true, Body: "x"}, 1, 500, "x", "", false},
		{"code", chattest.Fault{Kind: chattest.Code, Code: "no_such"}, 0, 400, `{"ok":false,"error":"no_such"}`, "", false},
		{"any answer", chattest.Fault{Kind: chattest.Answer, Status: 302, Body: "moved", Header: map[string]string{"X-Y": "z"}}, 0, 302, "moved", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, 1)
			if tc.fault.Kind != "" {
				c.MustFault(tc.fault)
			}
			got := c.post(t.Context(), "send")
			if got.status != tc.status || got.body != tc.body || (got.readErr != nil) != tc.readFail || (tc.status == 0) != (got.err != nil) {
				t.Errorf("client saw %+v", got)
			}
			if got.header.Get("Retry-After") != tc.header {
				t.Errorf("Retry-After %q, want %q", got.header.Get("Retry-After"), tc.header)
			}
			if c.count() != tc.effects {
				t.Errorf("%d effects, want %d", c.count(), tc.effects)
			}
			l := c.Ledger()
			if len(l) != 1 {
				t.Fatalf("ledger: %+v", l)
			}
			if e := l[0]; !e.Done || e.Status != tc.status || (e.Effect != chattest.None) != (tc.effects > 0) || e.Fault != tc.fault.Kind || e.Body != "hello" || e.Channel != "C1" {
				t.Errorf("ledger: %+v", e)
			}
			if tc.readFail && !errors.Is(got.readErr, io.ErrUnexpectedEOF) {
				t.Errorf("want an early end of the body, got %v", got.readErr)
			}
			if tc.fault.Kind == chattest.Reset && !errors.Is(got.err, syscall.ECONNRESET) && !errors.Is(got.err, io.EOF) {
				t.Errorf("want a reset, got %v", got.err)
			}
		})
	}
}

func TestRefuseLetsNoByteOutAndComesBackOnTheSamePort(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	id := c.MustFault(chattest.Fault{Kind: chattest.Refuse})
	for range 3 {
		connected := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
		if got := c.post(ctx, "send"); !errors.Is(got.err, syscall.ECONNREFUSED) || connected {
			t.Fatalf("want connection refused before any byte, got %+v, connected %v", got, connected)
		}
	}
	if n := c.Requests(); n != 0 {
		t.Errorf("%d requests arrived at a closed port", n)
	}
	if !c.ClearFault(id) {
		t.Error("the fault was not there")
	}
	if got := c.post(t.Context(), "send"); got.status != 200 {
		t.Errorf("after clearing: %+v", got)
	}
}

func TestHangHoldsUntilClearedOrTheClientLeaves(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	id := c.MustFault(chattest.Fault{Kind: chattest.Hang})
	arrived := func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := c.Until(ctx, func() bool { return c.Requests() == n }); err != nil {
			t.Fatal(err)
		}
	}
	// The client leaves: no effect, and the ledger says so.
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan call, 2)
	go func() { done <- c.post(ctx, "send") }()
	arrived(1)
	leave()
	if got := <-done; !errors.Is(got.err, context.Canceled) {
		t.Errorf("client: %+v", got)
	}
	over, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Until(over, func() bool { return c.Ledger()[0].Done }); err != nil {
		t.Fatal(err)
	}
	if e := c.Ledger()[0]; !e.Left || e.Status != 0 || e.Effect != chattest.None || c.count() != 0 {
		t.Errorf("ledger: %+v", e)
	}
	// Cleared: the true answer comes.
	go func() { done <- c.post(t.Context(), "send") }()
	arrived(2)
	if c.count() != 0 || c.Ledger()[1].Done {
		t.Error("the hanging request was acted on")
	}
	c.ClearFault(id)
	if got := <-done; got.status != 200 || c.count() != 1 {
		t.Errorf("after clearing: %+v, %d effects", got, c.count())
	}
}

func TestHangWithCountLetsTheNextOneThrough(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	c.MustFault(chattest.Fault{Kind: chattest.Hang, Count: 1, Happens: true})
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan call, 1)
	go func() { first <- c.post(ctx, "send") }()
	wait, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Until(wait, func() bool { return c.count() == 1 }); err != nil {
		t.Fatal(err)
	}
	if got := c.post(t.Context(), "send"); got.status != 200 || c.count() != 2 {
		t.Errorf("second: %+v, %d effects", got, c.count())
	}
	leave()
	if got := <-first; got.err == nil {
		t.Errorf("first: %+v", got)
	}
}

func TestCountScopeAndOrder(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	c.MustFault(chattest.Fault{Kind: chattest.Code, Code: "twice", Method: "SEND", Channel: "C1", Count: 2})
	c.MustFault(chattest.Fault{Kind: chattest.Code, Code: "elsewhere", Channel: "C2"})
	var got []int
	for _, m := range []string{"other", "send", "send", "send"} {
		got = append(got, c.post(t.Context(), m).status)
	}
	if fmt.Sprint(got) != "[200 400 400 200]" {
		t.Errorf("statuses %v", got)
	}
	if f := c.Faults(); len(f) != 1 || f[0].Code != "elsewhere" || f[0].Struck != 0 {
		t.Errorf("what stands: %+v", f)
	}
}

func TestOneSeedRepeatsItself(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) string {
		c := start(t, seed)
		c.MustFault(chattest.Fault{Kind: chattest.Code, Code: "x", Probability: 0.5})
		var b strings.Builder
		for range 40 {
			fmt.Fprint(&b, c.post(t.Context(), "send").status, " ")
		}
		return b.String()
	}
	a, b, other := run(7), run(7), run(8)
	if a != b {
		t.Errorf("one seed, two runs:\n%s\n%s", a, b)
	}
	if a == other || !strings.Contains(a, "200") || !strings.Contains(a, "400") {
		t.Errorf("another seed, or no chance at all:\n%s\n%s", a, other)
	}
}

func TestWrongFaultsAreRefusedWithAReason(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	for want, f := range map[string]chattest.Fault{
		"unknown kind":    {Kind: "sulk"},
		"not between":     {Kind: chattest.Reset, Probability: 1.5},
		"negative":        {Kind: chattest.Reset, Count: -1},
		"needs a code":    {Kind: chattest.Code},
		"whole chat":      {Kind: chattest.Refuse, Method: "send"},
		"between 200 and": {Kind: chattest.Error, Status: 99},
		"not be negative": {Kind: chattest.Slow, Interval: -1},
	} {
		if _, err := c.SetFault(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
	mounted := chattest.NewCore(nil, 0)
	if _, err := mounted.SetFault(chattest.Fault{Kind: chattest.Refuse}); err == nil {
		t.Error("a chat without a port of its own cannot refuse")
	}
	if _, err := mounted.Listen("0.0.0.0:0", nil); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("listened beyond loopback: %v", err)
	}
}

func TestFaultsAndLedgerOverHTTP(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	do := func(method, path, contentType, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, c.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", contentType)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		read, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(read)
	}
	const form = "application/x-www-form-urlencoded"
	if s, b := do("POST", "/faults", "application/json", `{"kind":"limited","method":"send","retry_after":"3","interval":"1s"}`); s != 200 || !strings.Contains(b, `"retry_after":"3"`) {
		t.Errorf("set by JSON: %d %s", s, b)
	}
	if s, b := do("POST", "/faults", "application/json", `{"kind":"limited","metod":"send"}`); s != 422 || !strings.Contains(b, "metod") {
		t.Errorf("a misspelt field: %d %s", s, b)
	}
	if s, _ := do("POST", "/faults", form, "kind=error&status=503&probability=0.5&count=2&interval=&json=1"); s != 303 {
		t.Errorf("set by the form: %d", s)
	}
	if f := c.Faults(); len(f) != 2 || f[1].Status != 503 || f[1].Probability != 0.5 || f[1].Count != 2 || !f[1].JSON {
		t.Errorf("faults: %+v", f)
	}
	if s, b := do("POST", "/faults", form, "kind=error&status=many"); s != 422 || !strings.Contains(b, "many") {
		t.Errorf("a wrong number: %d %s", s, b)
	}
	if s, _ := do("DELETE", fmt.Sprintf("/faults/%d", c.Faults()[0].ID), "", ""); s != 200 || len(c.Faults()) != 1 {
		t.Errorf("clear one: %d, %+v", s, c.Faults())
	}
	if s, _ := do("DELETE", "/faults", "", ""); s != 200 || len(c.Faults()) != 0 {
		t.Errorf("clear all: %d, %+v", s, c.Faults())
	}
	if s, _ := do("PUT", "/faults", "", ""); s != 405 {
		t.Errorf("PUT: %d", s)
	}

	do("POST", "/send", "", "token=s3cret")
	do("POST", "/other", "", "x")
	s, b := do("GET", "/ledger.json?method=send", "", "")
	var l struct{ Items []chattest.Request }
	if err := json.Unmarshal([]byte(b), &l); s != 200 || err != nil || len(l.Items) != 1 || l.Items[0].Body != "token=(token)" || l.Items[0].Effect != chattest.Created {
		t.Errorf("ledger: %d %s %v", s, b, err)
	}
	if raw := c.Ledger(chattest.ByMethod("send")); raw[0].Body != "token=s3cret" {
		t.Errorf("tests see the raw body: %+v", raw)
	}
}

func TestARefusalSetThroughItsOwnPortEndsByItself(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	set := func(body string) {
		t.Helper()
		resp, err := http.Post(c.URL()+"/faults", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatalf("%s: %d", body, resp.StatusCode)
		}
	}
	set(`{"kind":"refuse"}`)
	if f := c.Faults(); len(f) != 1 || time.Duration(f[0].For) != 30*time.Second {
		t.Errorf("nobody could clear it: %+v", f)
	}
	c.ClearFaults()
	set(`{"kind":"refuse","for":"50ms"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Until(ctx, func() bool { return len(c.Faults()) == 0 }); err != nil {
		t.Fatal(err)
	}
	for {
		got := c.post(ctx, "send")
		if got.status == 200 {
			break
		}
		if !errors.Is(got.err, syscall.ECONNREFUSED) {
			t.Fatalf("after the time: %+v", got)
		}
	}
}

func TestUntilNamesWhatEndedTheWait(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the test gave up"))
	if err := c.Until(ctx, func() bool { return false }); err == nil || !strings.Contains(err.Error(), "the test gave up") {
		t.Errorf("error: %v", err)
	}
}

func TestEventsTellOfAChange(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /events HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := c.post(t.Context(), "send"); got.status != 200 {
		t.Fatal(got)
	}
	var seen strings.Builder
	buf := make([]byte, 512)
	for !strings.Contains(seen.String(), "data: changed\n\n") {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("stream ended after %q: %v", seen.String(), err)
		}
		seen.Write(buf[:n])
	}
}

func TestSafeURL(t *testing.T) {
	t.Parallel()
	for raw, ok := range map[string]bool{
		"https://example.com/a?b=c": true, "HTTP://x": true, "mailto:a@example.com": true,
		"javascript:alert(1)": false, " JavaScript:alert(1)": false, "data:text/html,x": false, "//example.com": false, "http:x": false, "": false, "vbscript:x": false, "java\nscript:x": false,
	} {
		if got := chattest.SafeURL(raw); (got != "") != ok {
			t.Errorf("%q gave %q", raw, got)
		}
	}
}
