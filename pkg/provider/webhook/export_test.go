package webhook

import (
	"crypto/tls"
	"net/netip"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// NewTrusting is New with the roots of a test's own servers.
func NewTrusting(n config.Notifier, roots *tls.Config, allow ...netip.Prefix) (*Provider, error) {
	return newProvider(n, nil, roots, allow)
}

// Rows is the table of refusals.
func Rows() map[int]delivery.Fault {
	out := map[int]delivery.Fault{}
	for status, r := range rows {
		out[status] = r.fault
	}
	return out
}
