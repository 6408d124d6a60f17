package wire

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
)

// Guard keeps calls away from what is not public. A client that has one, see [Client.Guarded], refuses to connect to any
// address that is not public, and to any over plain http, unless a range in Allow holds the address.
//
// It judges the address that a connection is about to be made to, after the name was looked up. So it makes no difference
// how the URL spells the address, and a name that resolves to something else the second time gains nothing. It does not
// ask which port. A guarded call asks no proxy: the address could not be seen through one.
type Guard struct {
	Allow []netip.Prefix // of the file's server.allow_private
}

// Guarded is the client for addresses that came from outside the file. It shares all but the guard.
func (c *Client) Guarded(g Guard) *Client {
	guarded := *c
	guarded.guard = &g
	guarded.dialer.ControlContext = g.control
	return &guarded
}

// Allows says that one of the ranges of the file holds the address.
func (g Guard) Allows(a netip.Addr) bool {
	a = a.WithZone("")
	for _, p := range g.Allow {
		if p.Contains(a) || p.Contains(inner(a)) {
			return true
		}
	}
	return false
}

// Permits says whether a TLS connection to the address may be made.
func (g Guard) Permits(a netip.Addr) bool { return g.Allows(a) || Public(a) }

// control is asked by the dialer for each connection, with the address in digits.
func (g Guard) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	// What can't be read is no public address: better refused than called.
	at, _ := netip.ParseAddrPort(address)
	p := probeOf(ctx)
	switch {
	case g.Allows(at.Addr()):
		return nil
	case !Public(at.Addr()):
		return refusal{
			code: "private_address", text: address + " is not a public address",
			sentence: fmt.Sprintf("%s is not a public address: if it may be called, add its range to server.allow_private in the file", at.Addr()),
		}
	case p == nil || !p.secure:
		return refusal{
			code: "not_https", text: address + " was to be called without TLS",
			sentence: fmt.Sprintf("the URL must begin with https://, unless server.allow_private in the file has the range of %s", at.Addr()),
		}
	}
	return nil
}

// refusal is the error of a connection that a guard did not let come about.
type refusal struct{ code, text, sentence string }

func (r refusal) Error() string { return r.text }

// Public says that an address belongs to the public network: IANA's registries of special-purpose addresses give it no
// other purpose. Addresses that hold one of version 4, of which a gateway or the system takes nothing but that, are as
// public as it is.
func Public(a netip.Addr) bool {
	a = inner(a.WithZone(""))
	switch {
	case !a.IsValid():
		return false
	case a.Is4():
		return !within(a, special4)
	}
	// Of version 6 IANA has given out nothing but 2000::/3 for unicast to all the world. Outside it are the loopback, what
	// is local to a link or site (fe80::/10, fec0::/10), unique local addresses (fc00::/7), multicast, the discard prefix
	// 100::/64, segment identifiers (5f00::/16), and NAT64 of local use (64:ff9b:1::/48), which hides its address of
	// version 4 in a place that only the gateway knows.
	return global.Contains(a) && !within(a, special6)
}

// inner is the address of version 4 in one of version 6: IPv4-mapped (::ffff:0:0/96, RFC 4291), IPv4-compatible (::/96, of
// old, RFC 4291), IPv4-translated (::ffff:0:0:0/96, RFC 2765) and NAT64 with its well-known prefix (64:ff9b::/96, RFC 6052),
// which in a network without version 4 leads to all the world. Others are returned as they are.
func inner(a netip.Addr) netip.Addr {
	if a.Is4In6() {
		return a.Unmap()
	}
	if a.Is6() && within(a, embedding) {
		b := a.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

func within(a netip.Addr, ranges []netip.Prefix) bool {
	for _, p := range ranges {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func ranges(all ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(all))
	for i, s := range all {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

var (
	global    = netip.MustParsePrefix("2000::/3")
	embedding = ranges("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")

	special4 = ranges(
		"0.0.0.0/8",        // this network; many systems take 0.0.0.0 for themselves
		"10.0.0.0/8",       // private
		"100.64.0.0/10",    // behind a carrier's NAT; Alibaba's metadata service is in it
		"127.0.0.0/8",      // loopback
		"168.63.129.16/32", // not in the registry: each virtual machine in Azure reaches its host by it, says Microsoft
		"169.254.0.0/16",   // link-local, and the metadata services of most clouds
		"172.16.0.0/12",    // private
		"192.0.0.0/24",     // protocol assignments; Oracle's metadata service is in it
		"192.0.2.0/24",     // documentation
		"192.88.99.0/24",   // relays of 6to4, given up
		"192.168.0.0/16",   // private
		"198.18.0.0/15",    // benchmarking
		"198.51.100.0/24",  // documentation
		"203.0.113.0/24",   // documentation
		"224.0.0.0/4",      // multicast
		"240.0.0.0/4",      // reserved, and the broadcast address
	)

	special6 = ranges(
		"2001::/23",     // protocol assignments: Teredo 2001::/32, benchmarking 2001:2::/48, ORCHID 2001:10::/28 and 2001:20::/28
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4: the relay at the address of version 4 in it takes it further
		"3ffe::/16",     // the 6bone's, given back
		"3fff::/20",     // documentation
	)
)
