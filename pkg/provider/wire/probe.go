package wire

import (
	"crypto/tls"
	"math"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// counted counts the bytes that leave through a connection.
type counted struct {
	net.Conn
	n atomic.Int64
}

// Write counts before it writes: an answer can arrive before Write returns, and counting afterwards was seen to
// report nothing written for calls whose whole answer had been read. A short write is corrected after.
func (c *counted) Write(b []byte) (int, error) {
	if c.n.Add(int64(len(b))) < 0 {
		return 0, net.ErrClosed // sealed
	}
	n, err := c.Conn.Write(b)
	c.n.Add(int64(n - len(b)))
	return n, err
}

// seal makes every later Write fail, but only if no more than base bytes were written so far. One atomic step decides:
// either a write was counted, and the call is in doubt, or none ever will be.
func (c *counted) seal(base int64) {
	for {
		v := c.n.Load()
		if v > base || v < 0 || c.n.CompareAndSwap(v, math.MinInt64/2) {
			return
		}
	}
}

// written is the bytes written past base, none when sealed.
func (c *counted) written(base int64) int64 { return max(c.n.Load()-base, 0) }

// phase is where a call stands.
type phase int

const (
	phaseNone phase = iota
	phaseDNS
	phaseConnect
	phaseTLS
	phaseAnswer // connected: writing the request, waiting for the answer
	phaseBody   // the answer has begun
)

type probeKey struct{}

// probe follows one call. Its hooks run on the transport's goroutines, some of them after the call is over (a dial
// that lost the race, for one), hence the lock and the copies.
type probe struct {
	mu        sync.Mutex
	phase     phase
	conns     int
	conn      *counted
	base      int64
	dialStart time.Time
	dnsStart  time.Time
	tlsStart  time.Time
	gotConn   time.Time
	dns       time.Duration
	connect   time.Duration
	tls       time.Duration
	firstByte time.Duration
}

func (p *probe) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { p.at(phaseDNS, func(now time.Time) { p.dnsStart = now }) },
		DNSDone: func(i httptrace.DNSDoneInfo) {
			next := phaseConnect
			if i.Err != nil {
				next = phaseDNS
			}
			p.at(next, func(now time.Time) { p.dns = now.Sub(p.dnsStart) })
		},
		TLSHandshakeStart: func() { p.at(phaseTLS, func(now time.Time) { p.tlsStart = now }) },
		TLSHandshakeDone: func(tls.ConnectionState, error) {
			p.at(phaseTLS, func(now time.Time) { p.tls = now.Sub(p.tlsStart) })
		},
		GotConn: func(i httptrace.GotConnInfo) {
			c := i.Conn
			if t, ok := c.(interface{ NetConn() net.Conn }); ok {
				c = t.NetConn() // a *tls.Conn has ours below it
			}
			p.at(phaseAnswer, func(now time.Time) {
				p.conns++
				p.gotConn = now
				if cc, ok := c.(*counted); ok {
					p.conn, p.base = cc, cc.n.Load() // the handshake's bytes are below base
				}
			})
		},
		GotFirstResponseByte: func() { p.at(phaseBody, func(now time.Time) { p.firstByte = now.Sub(p.gotConn) }) },
	}
}

// at moves the call to a phase and lets f note the moment. The phase never goes back: look-ups and dials in the
// background go on after a connection was found.
func (p *probe) at(next phase, f func(now time.Time)) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase = max(p.phase, next)
	f(now)
}

func (p *probe) dialing() {
	if p == nil {
		return
	}
	// Until a look-up begins the call connects; an address in digits has none.
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialStart = time.Now()
}

func (p *probe) dialed(ok bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == phaseNone {
		p.phase = phaseConnect
	}
	if p.phase != phaseDNS || ok {
		p.connect = max(time.Since(p.dialStart)-p.dns, 0)
	}
}

func (p *probe) current() phase {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phase
}

func (p *probe) seal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.seal(p.base)
	}
}

// fill copies what was seen into the record.
func (p *probe) fill(r *Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Conns, r.phase = p.conns, p.phase
	r.DNS, r.Connect, r.TLS, r.FirstByte = p.dns, p.connect, p.tls, p.firstByte
	if p.conn != nil {
		r.Bytes = p.conn.written(p.base)
	}
}
