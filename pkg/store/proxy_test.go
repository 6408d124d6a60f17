package store_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// fault is one of the two ways in which a write is lost: the request does not arrive, or its answer does not.
type fault string

const (
	lostRequest fault = "failed"
	lostAnswer  fault = "failed but it happened"
)

// proxy stands between a store and its database. It speaks enough of the protocol to know which message makes a write.
type proxy struct {
	t      testing.TB
	target string
	mu     sync.Mutex
	what   []byte // the beginning of the message that the next fault is for; empty: none
	how    fault
	struck int
}

// The beginnings of messages, type and text: what executes a prepared statement, and what commits a transaction.
var (
	execute = []byte("E")
	commit  = []byte("Qcommit")
)

// newProxy returns a proxy and the address by which its database is reached through it.
func newProxy(t testing.TB, database string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	p := &proxy{t: t, target: u.Host}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	u.Host = ln.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable") // the proxy has to read along
	u.RawQuery = q.Encode()
	return p, u.String()
}

// lose lets the next message that begins with what meet a fault.
func (p *proxy) lose(what []byte, how fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.how = what, how
}

// met is how many faults have struck.
func (p *proxy) met() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.struck
}

func (p *proxy) strikes(m []byte) (fault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.what) == 0 || !bytes.HasPrefix(m, p.what) {
		return "", false
	}
	p.what = nil
	p.struck++
	return p.how, true
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer server.Close()
	swallow := make(chan struct{}) // closed: no answer gets through any more
	var both sync.WaitGroup
	both.Go(func() {
		defer client.Close()
		defer server.Close()
		from := bufio.NewReader(client)
		if m, err := readMessage(from, 0); err != nil || write(server, m) != nil { // the start-up message has no type
			return
		}
		prepared := map[string][]byte{} // texts, by name
		for {
			m, err := readMessage(from, 1)
			if err != nil {
				return
			}
			how, hit := p.strikes(plain(m, prepared))
			if hit && how == lostRequest {
				return
			}
			if hit {
				close(swallow)
			}
			if write(server, m) != nil {
				return
			}
		}
	})
	both.Go(func() {
		defer client.Close()
		defer server.Close()
		from := bufio.NewReader(server)
		for {
			m, err := readMessage(from, 1)
			if err != nil {
				return
			}
			select {
			case <-swallow:
				if m[0] == 'Z' { // ready for the next query: what was asked for is committed
					return
				}
			default:
				if write(client, m) != nil {
					return
				}
			}
		}
	})
	both.Wait()
}

// plain is a message without its length. One that binds a prepared commit is as one that holds it.
func plain(m []byte, prepared map[string][]byte) []byte {
	words := bytes.SplitN(m[5:], []byte{0}, 3) // Parse: name, text; Bind: portal, name
	switch {
	case m[0] == 'P' && len(words) == 3:
		prepared[string(words[0])] = words[1]
	case m[0] == 'B' && len(words) == 3 && bytes.Equal(prepared[string(words[1])], commit[1:]):
		return commit
	}
	return append([]byte{m[0]}, m[5:]...)
}

// readMessage reads one message: a type of the given length, four bytes of length, the rest.
func readMessage(from *bufio.Reader, typ int) ([]byte, error) {
	head := make([]byte, typ+4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	m := make([]byte, typ+int(binary.BigEndian.Uint32(head[typ:])))
	copy(m, head)
	_, err := io.ReadFull(from, m[typ+4:])
	return m, err
}

func write(to net.Conn, m []byte) error {
	_, err := to.Write(m)
	return err
}
