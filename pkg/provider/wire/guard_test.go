package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// Each range by its first and last address, which are refused, and by its neighbours just outside.
func TestEveryRangeAndItsNeighbours(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, first, last, before, after string }{
		{"this network", "0.0.0.0", "0.255.255.255", "", "1.0.0.0"},
		{"private 10", "10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"},
		{"carrier's NAT", "100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0"},
		{"loopback", "127.0.0.0", "127.255.255.255", "126.255.255.255", "128.0.0.0"},
		{"Azure's host", "168.63.129.16", "168.63.129.16", "168.63.129.15", "168.63.129.17"},
		{"link-local", "169.254.0.0", "169.254.255.255", "169.253.255.255", "169.255.0.0"},
		{"private 172", "172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0"},
		{"protocols", "192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0"},
		{"documentation 1", "192.0.2.0", "192.0.2.255", "192.0.1.255", "192.0.3.0"},
		{"6to4 relays", "192.88.99.0", "192.88.99.255", "192.88.98.255", "192.88.100.0"},
		{"private 192", "192.168.0.0", "192.168.255.255", "192.167.255.255", "192.169.0.0"},
		{"benchmarking", "198.18.0.0", "198.19.255.255", "198.17.255.255", "198.20.0.0"},
		{"documentation 2", "198.51.100.0", "198.51.100.255", "198.51.99.255", "198.51.101.0"},
		{"documentation 3", "203.0.113.0", "203.0.113.255", "203.0.112.255", "203.0.114.0"},
		{"multicast", "224.0.0.0", "239.255.255.255", "223.255.255.255", ""},
		{"reserved", "240.0.0.0", "255.255.255.255", "", ""},
		{"before unicast", "::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", "", "2000::"},
		{"after unicast", "4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""},
		{"Teredo and other protocols", "2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::"},
		{"benchmarking 6", "2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", "", ""},
		{"ORCHID", "2001:10::", "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
		{"documentation 6", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"},
		{"6to4", "2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2003::"},
		{"6to4 with a public address in it", "2002:808:808::1", "2002:a00:1::1", "", ""},
		{"6bone", "3ffe::", "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3ffd:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:1000::"},
		{"documentation 6, new", "3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "", "3fff:1000::"},
		{"loopback 6", "::1", "::1", "", ""},
		{"NAT64 of local use", "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "", ""},
		{"NAT64 beside its prefix", "64:ff9b::1:808:808", "64:ff9a:ffff:ffff:ffff:ffff:808:808", "", ""},
		{"discard", "100::", "100::ffff:ffff:ffff:ffff", "", ""},
		{"segment identifiers", "5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
		{"unique local", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
		{"Amazon's metadata", "fd00:ec2::254", "fd00:ec2::254", "", ""},
		{"link-local 6", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
		{"link-local with a zone", "fe80::1%eth0", "fe80::1%2", "", ""},
		{"site-local", "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
		{"multicast 6", "ff00::", "ff0e::1", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range []string{c.first, c.last} {
				if a := netip.MustParseAddr(s); Public(a) || (Guard{}).Permits(a) {
					t.Errorf("%s counts as public", a)
				}
			}
			for _, s := range []string{c.before, c.after} {
				if s != "" && !Public(netip.MustParseAddr(s)) {
					t.Errorf("%s does not count as public", s)
				}
			}
			// The same inside the addresses of version 6 that hold one of version 4.
			for _, s := range []string{c.first, c.last, c.before, c.after} {
				a, err := netip.ParseAddr(s)
				if err != nil || !a.Is4() {
					continue
				}
				for _, prefix := range []string{"::ffff:", "::", "::ffff:0:", "64:ff9b::"} {
					if in := netip.MustParseAddr(prefix + s); Public(in) != Public(a) {
						t.Errorf("%s counts as public: %v", in, Public(in))
					}
				}
			}
		})
	}
	if Public(netip.Addr{}) {
		t.Error("no address at all counts as public")
	}
}

func TestAllowedRanges(t *testing.T) {
	t.Parallel()
	g := Guard{Allow: ranges("10.1.0.0/16", "fd00:1::/32", "fe80::/10", "2002::/16")}
	for s, want := range map[string]bool{
		"10.1.2.3": true, "10.2.0.0": false, "10.0.255.255": false, "::ffff:10.1.2.3": true, "::ffff:10.2.2.3": false,
		"64:ff9b::10.1.2.3": true, "64:ff9b::10.2.2.3": false,
		"fd00:1::1": true, "fd00:2::1": false, "fe80::1%eth0": true, "2002:808:808::1": true, "1.1.1.1": true, "127.0.0.1": false,
	} {
		if got := g.Permits(netip.MustParseAddr(s)); got != want {
			t.Errorf("%s is permitted: %v", s, got)
		}
	}
}

// names is a resolver that asks nobody: answer says what a name resolves to the n-th time, nothing when it does not exist.
func names(t *testing.T, answer func(name string, n int) []netip.Addr) *net.Resolver {
	t.Helper()
	var mu sync.Mutex
	asked := map[string]int{}
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			for {
				q, err := question(far)
				if err != nil {
					return
				}
				mu.Lock()
				asked[q.name+q.kind()]++
				n := asked[q.name+q.kind()]
				mu.Unlock()
				if err := q.answer(far, answer(q.name, n)); err != nil {
					return
				}
			}
		}()
		return near, nil
	}}
}

// query is a question to a name server, over TCP (RFC 1035, 4).
type query struct {
	raw  []byte // the question's section
	id   []byte
	name string
	six  bool
}

func (q query) kind() string {
	if q.six {
		return " AAAA"
	}
	return " A"
}

func question(r io.Reader) (query, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return query{}, err
	}
	m := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(r, m); err != nil {
		return query{}, err
	}
	q := query{id: m[:2]}
	at := 12
	for m[at] != 0 {
		q.name += string(m[at+1:at+1+int(m[at])]) + "."
		at += 1 + int(m[at])
	}
	q.six = binary.BigEndian.Uint16(m[at+1:]) == 28
	q.raw = m[12 : at+5]
	return q, nil
}

func (q query) answer(w io.Writer, addrs []netip.Addr) error {
	var records []byte
	count := 0
	for _, a := range addrs {
		if a.Is6() != q.six {
			continue
		}
		count++
		kind, data := uint16(1), a.AsSlice()
		if q.six {
			kind = 28
		}
		records = append(records, 0xc0, 12) // the name is the question's
		records = binary.BigEndian.AppendUint16(records, kind)
		records = binary.BigEndian.AppendUint16(records, 1)
		records = binary.BigEndian.AppendUint32(records, 0) // it may change at once
		records = binary.BigEndian.AppendUint16(records, uint16(len(data)))
		records = append(records, data...)
	}
	status := byte(0)
	if len(addrs) == 0 {
		status = 3 // no such name
	}
	m := append([]byte{}, q.id...)
	m = append(m, 0x81, 0x80|status, 0, 1)
	m = binary.BigEndian.AppendUint16(m, uint16(count))
	m = append(m, 0, 0, 0, 0)
	m = append(append(m, q.raw...), records...)
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
	return err
}

func addr(s string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(s)} }

// guarded is a client with a guard that uses a resolver.
func guarded(r *net.Resolver, g Guard) *Client {
	c := New(Options{Provider: "webhook", Timeout: 2 * time.Second})
	c.dialer.Resolver = r
	return c.Guarded(g)
}

// A listener that counts who came: a refused address must not see a connection.
func counter(t *testing.T) (port string, came *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came = &atomic.Int32{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, came
}

func refusedAs(t *testing.T, rec Record, reason string) {
	t.Helper()
	res := judgeGuarded(t, rec)
	if res.Reason != reason {
		t.Errorf("reason %q (%s), want %q", res.Reason, res.Error, reason)
	}
}

func judgeGuarded(t *testing.T, rec Record) delivery.Result {
	t.Helper()
	res, settled := rec.Judge()
	if !settled || res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotSent || res.Fault != delivery.FaultDestination ||
		!strings.Contains(res.Sentence, "server.allow_private in the file") || res.Bytes != 0 || res.Phase != delivery.PhaseConnect {
		t.Errorf("settled %v: %+v", settled, res)
	}
	return res
}

// However an address is spelt, it is judged by what would be connected to.
func TestGuardSeesThroughSpelling(t *testing.T) {
	t.Parallel()
	port, came := counter(t)
	resolver := names(t, func(name string, _ int) []netip.Addr {
		switch name {
		case "six.test.":
			return addr("::1")
		case "mapped.test.":
			return addr("::ffff:127.0.0.1")
		case "metadata.test.":
			return addr("169.254.169.254")
		case "two.test.":
			return append(addr("10.0.0.1"), netip.MustParseAddr("192.168.0.1"))
		}
		return addr("127.0.0.1")
	})
	c := guarded(resolver, Guard{})
	// Go's resolver takes these for no names, and does not ask. The system's, where Go uses that, makes addresses of them,
	// and these are then judged as any other.
	noName := map[string]bool{"2130706433": true, "0177.0.0.1": true, "017700000001": true, "127.1": true, "127.0.1": true, "127.0.0.1.": true}
	for _, host := range []string{
		"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::7f00:1]", "[64:ff9b::7f00:1]", "0.0.0.0", "[::]", "10.0.0.1", "[fe80::1%25lo]",
		"[0:0:0:0:0:0:0:1]", "localhost", "LOCALHOST", "localhost.", "127.0.0.1.nip.test", "six.test", "mapped.test", "metadata.test", "two.test",
		"2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "127.0.0.1.", "①②⑦.⓪.⓪.①",
		"public.test@127.0.0.1", "public.test:443@127.0.0.1", "127.0.0.1@127.0.0.1", "user:pass%40public.test@127.0.0.1",
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			refused := func(url string) {
				rec := post(t, c, url)
				if res, _ := rec.Judge(); noName[host] && res.Reason == "dns" && res.Evidence == delivery.NotSent {
					return
				}
				refusedAs(t, rec, "destination:private_address")
			}
			for _, url := range []string{"https://" + host + ":" + port + "/", "http://" + host + ":" + port + "/", "https://" + host + ":" + port + "?@public.test#@public.test"} {
				refused(url)
			}
			refused("https://" + host + "/hook") // the port makes no difference
		})
	}
	t.Cleanup(func() {
		if came.Load() != 0 {
			t.Errorf("%d connections came about", came.Load())
		}
	})
}

// The first answer is public, the second is not. Whatever looked the name up before, the connection is judged by itself.
func TestGuardIsNotRebound(t *testing.T) {
	t.Parallel()
	port, came := counter(t)
	resolver := names(t, func(_ string, n int) []netip.Addr {
		if n == 1 {
			return addr("192.0.3.1") // public; the first look-up is that of whoever checks an address beforehand
		}
		return addr("127.0.0.1")
	})
	first, err := resolver.LookupNetIP(t.Context(), "ip4", "rebind.test.")
	if err != nil || len(first) != 1 || !Public(first[0]) {
		t.Fatalf("%v, %v", first, err)
	}
	c := guarded(resolver, Guard{})
	for range 3 {
		refusedAs(t, post(t, c, "https://rebind.test.:"+port), "destination:private_address")
	}
	if came.Load() != 0 {
		t.Errorf("%d connections came about", came.Load())
	}
}

// A name with a private and a public address gets to the public one at most.
func TestGuardOfAMixedAnswer(t *testing.T) {
	t.Parallel()
	port, came := counter(t)
	c := guarded(names(t, func(string, int) []netip.Addr { return append(addr("127.0.0.1"), netip.MustParseAddr("192.0.3.1")) }), Guard{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if res, _ := postContext(t, ctx, c, "https://mixed.test.:"+port).Judge(); res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotSent {
		t.Errorf("%+v", res)
	}
	if came.Load() != 0 {
		t.Errorf("%d connections came about", came.Load())
	}
}

func TestGuardWantsTLSUnlessAllowed(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	res := judgeGuarded(t, post(t, guarded(nil, Guard{}), "http://192.0.3.1/hook"))
	if res.Reason != "destination:not_https" || !strings.Contains(res.Sentence, "https://") {
		t.Errorf("%+v", res)
	}
	if rec := post(t, guarded(nil, Guard{Allow: ranges("127.0.0.0/8")}), s.URL); rec.Status != 200 {
		t.Errorf("an allowed range: %v", rec.Err)
	}
	refusedAs(t, post(t, guarded(nil, Guard{Allow: ranges("127.0.0.2/32")}), s.URL), "destination:private_address")
	// The client that it was made from goes on as before, and calls what the file says.
	c := New(Options{Provider: "webhook"})
	refusedAs(t, post(t, c.Guarded(Guard{}), s.URL), "destination:private_address")
	if rec := post(t, c, s.URL); rec.Status != 200 {
		t.Errorf("without a guard: %v", rec.Err)
	}
}

// An address that never was one, and one with a redirect inside, are no way around the guard.
func TestGuardedCallFollowsNothing(t *testing.T) {
	t.Parallel()
	port, came := counter(t)
	s := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:"+port, http.StatusTemporaryRedirect))
	t.Cleanup(s.Close)
	rec := post(t, guarded(nil, Guard{Allow: ranges("127.0.0.1/32")}), s.URL)
	if res, _ := rec.Judge(); res.Reason != "destination:redirect_307" || came.Load() != 0 {
		t.Errorf("%+v, %d connections", res, came.Load())
	}
	if err := (Guard{}).control(t.Context(), "tcp", "not an address", nil); !errors.As(err, new(refusal)) {
		t.Errorf("what can't be read: %v", err)
	}
}

func TestGuardedCallAsksNoProxy(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(s.Close)
	c := New(Options{Provider: "webhook", Proxy: proxyTo(t, s.URL)})
	refusedAs(t, post(t, c.Guarded(Guard{}), "http://10.0.0.1/hook"), "destination:private_address")
	if asked.Load() != 0 {
		t.Error("the proxy was asked")
	}
	if rec := post(t, c, "http://10.0.0.1/hook"); rec.Status != 200 || asked.Load() != 1 {
		t.Errorf("without a guard: %v", rec.Err)
	}
}

// A refusal is told with the address, and never with the URL's secrets.
func TestRefusalNamesTheAddress(t *testing.T) {
	t.Parallel()
	c := guarded(names(t, func(string, int) []netip.Addr { return addr("10.20.30.40") }), Guard{})
	res := judgeGuarded(t, post(t, c, "https://ana:hunter22@hooks.test./secret-path?token=secret"))
	if want := "10.20.30.40 is not a public address: if it may be called, add its range to server.allow_private in the file"; res.Sentence != want {
		t.Errorf("sentence %q", res.Sentence)
	}
	if want := "hooks.test. was not called: 10.20.30.40:443 is not a public address"; res.Error != want {
		t.Errorf("error %q", res.Error)
	}
	if all := fmt.Sprintf("%+v", res); strings.Contains(all, "hunter22") || strings.Contains(all, "secret") {
		t.Error(all)
	}
}
