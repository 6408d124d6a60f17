package ical

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/nettest"
)

const whole = "BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"

// fetcher has a secret in each address, and takes it out of what it says.
func fetcher(timeout time.Duration) *Fetcher {
	f := New(func(s string) string { return strings.ReplaceAll(s, "s3cr3t", "${ROTA}") })
	f.timeout = timeout
	return f
}

// raw answers each connection by hand, and gives the address of a calendar there.
func raw(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					answer(conn)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/s3cr3t/basic.ics?key=s3cr3t"
}

func says200(conn net.Conn, length int, body string) {
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/calendar\r\nContent-Length: %d\r\n\r\n%s", length, body)
}

func TestFetch(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); r.Method != http.MethodGet || r.URL.Path != "/basic.ics" || user != "ana" || password != "s3cr3t" || !strings.Contains(r.Header.Get("Accept"), "text/calendar") {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_, _ = w.Write([]byte(whole))
	}))
	defer s.Close()
	text, err := fetcher(Timeout).Fetch(t.Context(), strings.Replace(s.URL, "http://", "http://ana:s3cr3t@", 1)+"/basic.ics")
	if err != nil || text != whole {
		t.Errorf("%q, %v", text, err)
	}
}

func TestALargeCalendar(t *testing.T) {
	t.Parallel()
	large := whole + strings.Repeat(" ", MaxSize-len(whole))
	text, err := fetcher(Timeout).Fetch(t.Context(), raw(t, func(c net.Conn) { says200(c, len(large), large) }))
	if err != nil || len(text) != MaxSize {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestWhatAFailedFetchSays(t *testing.T) {
	t.Parallel()
	status := func(line string, headers ...string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: 3\r\n%s\r\n\r\nno\n", line, strings.Join(append(headers, "X: y"), "\r\n"))
		}
	}
	for _, c := range []struct {
		name   string
		answer func(net.Conn)
		want   string
		after  time.Duration
	}{
		{"broken", status("500 Oops"), "answered 500", 0},
		{"busy", status("503 Wait", "Retry-After: 1200"), "answered 503", 20 * time.Minute},
		{"too often", status("429 Wait", "Retry-After: 60"), "answered 429", time.Minute},
		{"gone", status("404 Gone"), "answered 404: look whether the address is still the calendar's", 0},
		{"closed", status("401 Sign in"), "answered 401: look whether the address is still the calendar's, and whether it may be read without signing in", 0},
		{"moved", status("302 Elsewhere", "Location: http://127.0.0.1:1/s3cr3t"), "answered 302: the calendar has moved, and tocsin follows no redirect; put the new address into the file", 0},
		{"empty", status("204 Nothing"), "answered 204", 0},
		{"cut", func(c net.Conn) { says200(c, 100, whole) }, "broke off after 32 bytes", 0},
		{"huge", func(c net.Conn) { says200(c, MaxSize+1, strings.Repeat("x", MaxSize+1)) }, "is larger than 4 MiB", 0},
		{"endless", func(c net.Conn) {
			says200(c, 1<<40, "")
			for {
				if _, err := c.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, "is larger than 4 MiB", 0},
		{"no HTTP", func(c net.Conn) { _, _ = c.Write([]byte("hello s3cr3t\r\n\r\n")) }, "did not answer: ", 0},
		{"closes", func(net.Conn) {}, "did not answer: ", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text, err := fetcher(Timeout).Fetch(t.Context(), raw(t, c.answer))
			fails(t, text, err, c.want, c.after)
		})
	}
}

func TestAFetchThatGoesNowhereEnds(t *testing.T) {
	t.Parallel()
	hang := func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }
	text, err := fetcher(200*time.Millisecond).Fetch(t.Context(), raw(t, hang))
	fails(t, text, err, "did not answer: the whole calendar did not come within 200ms", 0)
	text, err = fetcher(200*time.Millisecond).Fetch(t.Context(), raw(t, func(conn net.Conn) {
		says200(conn, 100, "BEGIN")
		hang(conn)
	}))
	fails(t, text, err, "broke off after 5 bytes: the whole calendar did not come within 200ms", 0)
	text, err = fetcher(Timeout).Fetch(t.Context(), "http://"+nettest.Refused(t)+"/s3cr3t")
	fails(t, text, err, "did not answer: ", 0)
}

// fails says that a fetch failed with these words, and that nothing of the address is in them but the host.
func fails(t *testing.T, text string, err error, want string, after time.Duration) {
	t.Helper()
	var failure *Failure
	if !errors.As(err, &failure) || text != "" {
		t.Fatalf("%.40q, %v", text, err)
	}
	if !strings.Contains(failure.Sentence, want) || !strings.Contains(failure.Sentence, "127.0.0.1:") || failure.RetryAfter != after {
		t.Errorf("%q after %s, want %q after %s", failure.Sentence, failure.RetryAfter, want, after)
	}
	for _, secret := range []string{"s3cr3t", "basic.ics", "key="} {
		if strings.Contains(failure.Sentence, secret) {
			t.Errorf("%s is in %q", secret, failure.Sentence)
		}
	}
}
