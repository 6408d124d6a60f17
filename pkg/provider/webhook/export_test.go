package webhook

import (
	"crypto/tls"
	"net/netip"

	"github.com/tocsin-oncall/tocsin/pkg/config"
)

// NewTrusting is New with the roots of a test's own servers.
func NewTrusting(n config.Notifier, roots *tls.Config, allow ...netip.Prefix) (*Provider, error) {
	return newProvider(n, nil, roots, allow)
}
