package wire

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"net/http/httptrace"
	"net/netip"
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

// probeOf is the probe of the call that a context belongs to.
func probeOf(ctx context.Context) *probe {
	p, _ := ctx.Value(probeKey{}).(*probe)
	return p
}

// probe follows one call. Its hooks run on the transport's goroutines, some of them after the call is over (a dial
// that lost the race, for one), hence the lock and the copies.
type probe struct {
	call    context.Context // over when the call is
	began   time.Time
	dialer  net.Dialer
	guarded bool
	secure  bool // the URL says https

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
		TLSHandshakeStart: func() {
			p.at(phaseTLS, func(now time.Time) { p.connected(now); p.tlsStart = now })
		},
		TLSHandshakeDone: func(tls.ConnectionState, error) {
			p.at(phaseTLS, func(now time.Time) { p.tls = now.Sub(p.tlsStart) })
		},
		GotConn: func(i httptrace.GotConnInfo) {
			c := i.Conn
			if t, ok := c.(interface{ NetConn() net.Conn }); ok {
				c = t.NetConn() // a *tls.Conn has ours below it
			}
			p.at(phaseAnswer, func(now time.Time) {
				p.connected(now)
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

// dialing begins the look-up, or the connection where the address is in digits and nothing is looked up.
func (p *probe) dialing(address string) {
	next := phaseNone // the resolver says when it begins
	if _, err := netip.ParseAddrPort(address); err == nil {
		next = phaseConnect
	}
	p.at(next, func(now time.Time) { p.dialStart = now })
}

// dialed ends the time of connecting. Through a proxy it goes on until the proxy has connected too, see connected.
func (p *probe) dialed() {
	p.at(phaseNone, func(now time.Time) {
		if p.phase == phaseConnect {
			p.connect = now.Sub(p.dialStart) - p.dns
		}
	})
}

// connected notes that the connection leads to the far side. The lock is held.
func (p *probe) connected(now time.Time) {
	if p.tlsStart.IsZero() && !p.dialStart.IsZero() {
		p.connect = now.Sub(p.dialStart) - p.dns
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

// fill copies what was seen into the record. A phase in which the call ended took until now, though nothing said that it
// was over.
func (p *probe) fill(r *Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Conns, r.phase = p.conns, p.phase
	r.DNS, r.Connect, r.TLS, r.FirstByte = p.dns, p.connect, p.tls, p.firstByte
	if p.conn != nil {
		r.Bytes = p.conn.written(p.base)
	}
	now := time.Now()
	switch {
	case p.phase == phaseDNS && r.DNS == 0:
		r.DNS = now.Sub(p.dnsStart)
	case p.phase == phaseConnect && r.Connect == 0 && !p.dialStart.IsZero():
		r.Connect = now.Sub(p.dialStart) - p.dns
	case p.phase == phaseTLS && r.TLS == 0:
		r.TLS = now.Sub(p.tlsStart)
	case p.phase == phaseAnswer:
		r.FirstByte = now.Sub(p.gotConn)
	}
}
