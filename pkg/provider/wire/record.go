package wire

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// Record is all that is known of one call. Body is at most what the client reads, and whole only when ReadErr is nil.
type Record struct {
	Called    bool   // false: no request reached the transport
	Host      string // host and port that were called
	Err       error  // the transport's error; Status is 0 then
	Status    int
	Header    http.Header
	Body      []byte
	ReadErr   error // reading the body ended with it
	Bytes     int64 // bytes of the request written on the connection
	Conns     int   // connections that were given the request; more than one would be a resend
	DNS       time.Duration
	Connect   time.Duration
	TLS       time.Duration
	FirstByte time.Duration // from the connection to the answer's first byte
	Duration  time.Duration

	phase    phase
	timedOut bool
	canceled bool
	provider string
	redact   Redactor
}

// Whole says that an answer came and all of it was read.
func (r Record) Whole() bool { return r.Status != 0 && r.ReadErr == nil }

// Tap hands a client to a library that wants something with a Do method, for one call, and keeps the record.
//
// The library gets a copy of the answer. A second call is refused: a library's own retries would be attempts without
// a row. A Tap must not be shared between calls.
type Tap struct {
	ctx    context.Context
	client *Client
	Record Record
}

// Tap makes the adapter of one call. ctx replaces the request's own, since not every library passes one on.
func (c *Client) Tap(ctx context.Context) *Tap {
	return &Tap{ctx: ctx, client: c, Record: Record{provider: c.provider, redact: c.redact}}
}

// Do makes the call. Its error carries neither URL nor header.
func (t *Tap) Do(req *http.Request) (*http.Response, error) {
	if t.Record.Called {
		return nil, errSecondCall
	}
	t.Record = t.client.Do(req.WithContext(t.ctx))
	r := t.Record
	if r.Err != nil {
		return nil, r.Err
	}
	return &http.Response{
		Status: http.StatusText(r.Status), StatusCode: r.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.Header.Clone(), Request: req,
		ContentLength: int64(len(r.Body)),
		Body:          io.NopCloser(io.MultiReader(bytes.NewReader(r.Body), failing{r.ReadErr})),
	}, nil
}

var errSecondCall = secondCall{}

type secondCall struct{}

func (secondCall) Error() string { return "one attempt is one call: the library asked for a second" }

// failing ends a copied body as the real one ended.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}
