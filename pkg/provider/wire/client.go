// Package wire is the one way in which HTTP providers call out. It makes a call, counts the bytes that left, keeps
// the whole answer, and says what is proven about the call.
//
// Every call has a connection of its own, speaks HTTP/1, follows no redirect, asks no proxy and is bounded in time
// and memory. So there is no silent resend inside the transport, and a call that wrote nothing is known to have done
// nothing. Where an address came from outside the file, a [Guard] keeps the call away from what is not public.
//
// Providers use a library to build requests at most: they judge from the [Record], never from a library's error and
// never from the text of one.
package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"
)

// The bounds of one call. Each is named in the error of the call that it ended.
const (
	// DefaultTimeout bounds the whole call, body included, where Options.Timeout is not set.
	DefaultTimeout = 10 * time.Second
	// DialTimeout bounds the name look-up and the connection together.
	DialTimeout = 5 * time.Second
	// TLSTimeout bounds the TLS handshake.
	TLSTimeout = 5 * time.Second
	// FirstByteTimeout bounds the wait for an answer's head. It is above the 8 s for which Telegram may hold a send
	// and matters only where the whole call may take longer.
	FirstByteTimeout = 25 * time.Second
	// MaxBody is how much of an answer's body is read, in bytes, where Options.MaxBody is not set. What is longer counts as not read.
	MaxBody = 1 << 20
	// MaxAnswer is how much of an answer goes into a result, in bytes.
	MaxAnswer = 2048
	// maxHead bounds an answer's head, in bytes.
	maxHead = 64 << 10
)

// Redactor takes secrets out of a text. *redact.Set is one.
type Redactor interface{ String(string) string }

// Options sets up a client. The zero value is usable.
type Options struct {
	Provider string        // provider's name as it stands in reasons: "slack"
	Timeout  time.Duration // bounds the whole call; DefaultTimeout when not positive
	MaxBody  int           // how much of an answer's body is read, in bytes; MaxBody when not positive
	Redact   Redactor      // nil: text is kept as it is
	TLS      *tls.Config   // nil: the system's roots
	// Proxy is asked for a proxy. nil means none: the environment's proxy settings are ignored, since a proxy's
	// refusal looks like the provider's.
	Proxy func(*http.Request) (*url.URL, error)
}

// Client makes calls. It is safe for use by many goroutines and holds nothing open between calls.
type Client struct {
	provider  string
	timeout   time.Duration
	maxBody   int
	redact    Redactor
	transport *http.Transport
	dialer    net.Dialer
	guard     *Guard // nil: every address may be called
}

// New makes a client.
func New(o Options) *Client {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxBody <= 0 {
		o.MaxBody = MaxBody
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // HTTP/2 resends refused streams by itself, with the full request seen by the server
	c := &Client{provider: o.Provider, timeout: o.Timeout, maxBody: o.MaxBody, redact: o.Redact}
	c.transport = &http.Transport{
		Proxy: func(req *http.Request) (*url.URL, error) {
			if p := probeOf(req.Context()); o.Proxy == nil || p != nil && p.guarded {
				return nil, nil
			}
			return o.Proxy(req)
		},
		DialContext:            dial,
		TLSClientConfig:        o.TLS.Clone(),
		TLSHandshakeTimeout:    TLSTimeout,
		ResponseHeaderTimeout:  FirstByteTimeout,
		MaxResponseHeaderBytes: maxHead,
		DisableKeepAlives:      true, // a fresh connection per attempt: nothing stale, nothing resent
		DisableCompression:     true, // the body that is kept is the body that was sent
		Protocols:              &protocols,
	}
	return c
}

// Timeout is the bound of the whole call.
func (c *Client) Timeout() time.Duration { return c.timeout }

// Do makes the call and returns all that is known of it. It makes one attempt, returns within the client's timeout
// even when the answer never ends, and never panics on what a server sends. The context can end it earlier.
func (c *Client) Do(req *http.Request) Record {
	began := time.Now()
	rec := Record{Called: true, Host: req.URL.Host, provider: c.provider, redact: c.redact}
	cause := fmt.Errorf("send timed out after %s", c.timeout)
	ctx, cancel := context.WithTimeoutCause(req.Context(), c.timeout, cause)
	defer cancel()
	p := &probe{call: ctx, began: began, dialer: c.dialer, guarded: c.guard != nil, secure: req.URL.Scheme == "https"}
	ctx = context.WithValue(httptrace.WithClientTrace(ctx, p.trace()), probeKey{}, p)
	req = req.WithContext(ctx)
	if u := req.URL.User; u != nil && req.Header.Get("Authorization") == "" {
		// http.Client would do this; the transport below it does not.
		password, _ := u.Password()
		req = req.Clone(ctx)
		req.SetBasicAuth(u.Username(), password)
	}

	// The transport is called directly. http.Client would wrap errors with the URL, which may be a secret, and would
	// look for redirects, cookies and referers.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		// From here on no byte of the request can leave, if none has: the proof outlives this call.
		p.seal()
		rec.Err = boundError(ctx, p, err)
	} else {
		rec.Status, rec.Header = resp.StatusCode, resp.Header
		rec.Body, rec.ReadErr = readBody(resp, c.maxBody)
		if rec.ReadErr != nil && ctx.Err() != nil {
			rec.ReadErr = ended(ctx, p)
		}
	}
	rec.Duration = time.Since(began)
	p.fill(&rec)
	rec.timedOut = errors.Is(ctx.Err(), context.DeadlineExceeded) || isTimeout(rec.Err)
	rec.canceled = errors.Is(ctx.Err(), context.Canceled)
	return rec
}

// readBody reads at most so much and closes the body. Time is bounded by the request's context.
func readBody(resp *http.Response, most int) ([]byte, error) {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, errors.New("the server switched protocols") // its body is the bare connection and has no end
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if err != nil {
		return body, err
	}
	if len(body) > most {
		return body[:most], ErrTooLong
	}
	return body, nil
}

// ErrTooLong is a record's ReadErr when the answer was longer than what is read of one.
var ErrTooLong = errors.New("the answer is longer than what is read of one")

// dial opens a counted connection within DialTimeout.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialWith(ctx, address, func(ctx context.Context) (net.Conn, error) {
		return probeOf(ctx).dialer.DialContext(ctx, network, address)
	})
}

func dialWith(ctx context.Context, address string, connect func(context.Context) (net.Conn, error)) (net.Conn, error) {
	p := probeOf(ctx)
	dctx, cancel := context.WithTimeoutCause(ctx, DialTimeout, fmt.Errorf("connecting timed out after %s", DialTimeout))
	defer cancel()
	// The transport lets a connection come about that nobody waits for any more; here it ends with its call, at any stage.
	defer context.AfterFunc(p.call, cancel)()
	p.dialing(address)
	conn, err := connect(dctx)
	p.dialed()
	if err != nil {
		if ctx.Err() == nil && dctx.Err() != nil {
			return nil, timeoutError{context.Cause(dctx)}
		}
		return nil, err
	}
	context.AfterFunc(p.call, func() { conn.Close() })
	return &counted{Conn: conn}, nil
}

// boundError replaces an error by the bound that caused it, where one did. Which one fired is known from the context
// and the phase, not from the error's text.
func boundError(ctx context.Context, p *probe, err error) error {
	var own timeoutError
	switch {
	case ctx.Err() != nil:
		return ended(ctx, p)
	case errors.As(err, &own):
		return own
	case isTimeout(err):
		switch p.current() {
		case phaseTLS:
			return timeoutError{fmt.Errorf("the TLS handshake timed out after %s", TLSTimeout)}
		case phaseAnswer, phaseBody: // with the answer begun, its head did not come to an end
			return timeoutError{fmt.Errorf("no answer came within %s", FirstByteTimeout)}
		}
	}
	return err
}

// ended says what ended a call whose context is over. A deadline that its caller set has no words of its own.
func ended(ctx context.Context, p *probe) error {
	cause := context.Cause(ctx)
	if cause == context.DeadlineExceeded { //nolint:errorlint // a bound that says more may wrap it
		return fmt.Errorf("its caller gave it %s, which are over", time.Since(p.began).Round(time.Millisecond))
	}
	return cause
}

// timeoutError marks an error as the work of one of the bounds.
type timeoutError struct{ error }

func (timeoutError) Timeout() bool { return true }

func (e timeoutError) Unwrap() error { return e.error }

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
