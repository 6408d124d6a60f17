package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// The record has all there is to judge by, whatever the status.
func TestRecordKeepsTheWholeAnswer(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("x", MaxBody)
	for _, c := range []struct {
		name    string
		status  int
		body    string
		length  int
		want    string
		readErr error
	}{
		{"page of a gateway", 502, "<html>bad gateway</html>", 24, "<html>bad gateway</html>", nil},
		{"nothing", 200, "", 0, "", nil},
		{"1 MiB", 200, whole, MaxBody, whole, nil},
		{"more than 1 MiB", 200, whole + "y", MaxBody + 1, whole, ErrTooLong},
		{"cut", 429, "slow do", 9, "slow do", io.ErrUnexpectedEOF},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rec := post(t, New(Options{Provider: "slack"}), peer(t, func(conn net.Conn) {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d X\r\nX-One: 1\r\nX-One: 2\r\nContent-Length: %d\r\n\r\n%s", c.status, c.length, c.body)
			}))
			if !rec.Called || rec.Err != nil || rec.Status != c.status || string(rec.Body) != c.want || !errors.Is(rec.ReadErr, c.readErr) || rec.Whole() != (c.readErr == nil) {
				t.Errorf("called %v, %v, status %d, %d bytes, %v", rec.Called, rec.Err, rec.Status, len(rec.Body), rec.ReadErr)
			}
			if got := rec.Header.Values("X-One"); len(got) != 2 || got[1] != "2" {
				t.Errorf("header %q", got)
			}
			if rec.Conns != 1 || rec.Bytes < 100 || rec.Bytes > 400 || rec.Duration < rec.Connect+rec.FirstByte {
				t.Errorf("%d connections, %d bytes, %s", rec.Conns, rec.Bytes, rec.Duration)
			}
		})
	}
}
