// Package ical fetches calendars that others keep. What it brings is a text; what the text means, [oncall.ReadCalendar] says.
package ical

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

const (
	// Timeout bounds one fetch, the whole answer included.
	Timeout = 30 * time.Second
	// MaxSize is how large a calendar may be, in bytes.
	MaxSize = 4 << 20
)

// Fetcher fetches calendars. Addresses stand in the file, so private ones may be called; a redirect is followed for nobody.
type Fetcher struct {
	client  *wire.Client
	timeout time.Duration
}

// New makes a fetcher. Redact takes secrets, of which each address is one, out of what is said of a failure.
func New(redact func(string) string) *Fetcher {
	return &Fetcher{client: wire.New(wire.Options{Provider: "calendar", Timeout: Timeout + time.Second, MaxBody: MaxSize, Redact: redactor(redact)}), timeout: Timeout}
}

type redactor func(string) string

func (r redactor) String(s string) string { return r(s) }

// Failure is a fetch that brought no calendar.
type Failure struct {
	Sentence   string        // what happened, and what to do about it where anything can be done
	RetryAfter time.Duration // the far side asked for it; zero: it did not
}

func (f *Failure) Error() string { return f.Sentence }

// Fetch makes one GET and gives the whole body of a 200, and nothing else. An error is always a *Failure. It never holds more of the
// address than host and port.
func (f *Fetcher) Fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("the whole calendar did not come within %s", f.timeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", &Failure{Sentence: "its address is no URL"}
	}
	req.Header.Set("Accept", "text/calendar, text/plain;q=0.5")
	req.Header.Set("User-Agent", "tocsin")
	rec := f.client.Do(req)
	if rec.Err == nil && rec.ReadErr == nil && rec.Status == http.StatusOK {
		return string(rec.Body), nil
	}
	failure := &Failure{Sentence: rec.Text(says(rec))}
	if rec.Status == http.StatusTooManyRequests || rec.Status == http.StatusServiceUnavailable {
		if rec.Header.Get("Retry-After") != "" {
			failure.RetryAfter = wire.RetryAfter(rec.Header, time.Now())
		}
	}
	return "", failure
}

// says is what happened, for people.
func says(rec wire.Record) string {
	switch status := rec.Status; {
	case rec.Err != nil:
		return fmt.Sprintf("%s did not answer: %v", rec.Host, rec.Err)
	case errors.Is(rec.ReadErr, wire.ErrTooLong):
		return fmt.Sprintf("the calendar of %s is larger than %d MiB: give tocsin one that has the shifts alone", rec.Host, MaxSize>>20)
	case rec.ReadErr != nil:
		return fmt.Sprintf("the answer of %s broke off after %d bytes: %v", rec.Host, len(rec.Body), rec.ReadErr)
	case status >= 300 && status < 400:
		return fmt.Sprintf("%s answered %d: the calendar has moved, and tocsin follows no redirect; put the new address into the file", rec.Host, status)
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound, status == http.StatusGone:
		return fmt.Sprintf("%s answered %d: look whether the address is still the calendar's, and whether it may be read without signing in", rec.Host, status)
	}
	return fmt.Sprintf("%s answered %d", rec.Host, rec.Status)
}
